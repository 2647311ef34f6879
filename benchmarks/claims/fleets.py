"""Runs of the paper's fleet, the same fleets for every scheme, and how their numbers are written."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedtwin.compiling import can_compile
from fedtwin.config import load_config
from fedtwin.experiments.analysis.statistics import mean_interval
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.sim import simulate

Summary = Mapping[str, Any]


def summaries(policy: str, fleets: int, rounds: int, **changes: Any) -> list[Summary]:
    """One run a fleet; a setting ``section__key`` is ``section.key``."""
    jobs = [Job(load_config(overrides=_settings(policy, seed, rounds, changes))) for seed in range(fleets)]
    return [outcome.summary for outcome in run_batch(jobs, workers=1)]


def values(of: Sequence[Summary], name: str) -> np.ndarray:
    return np.array([summary[name] for summary in of])


def rows(policy: str, seed: int, rounds: int, **changes: Any) -> pa.Table:
    """The records of one run, without declines; by the compiled engine where there is one, for there are many runs."""
    settings = {**_settings(policy, seed, rounds, changes), "run.engine": "compiled" if can_compile() else "readable"}
    found = simulate(load_config(overrides=settings)).rounds
    return found.filter(pc.invert(found["declined"]))


def with_interval(numbers: Sequence[float] | np.ndarray, digits: int, unit: str = "") -> str:
    """A mean over fleets and its 95 % interval."""
    found = mean_interval(list(numbers))
    return f"{found.mean:.{digits}f}{unit} ({found.low:.{digits}f} … {found.high:.{digits}f})".replace("-", "−")


def _settings(policy: str, seed: int, rounds: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    own = {key.replace("__", "."): value for key, value in changes.items()}
    return {"policy.name": policy, "run.seed": seed, "run.rounds": rounds, **own}
