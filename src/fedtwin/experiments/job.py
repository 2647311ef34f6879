"""One run of a batch: as a job, as plain data for another process, and as the line that is kept of it."""

import hashlib
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fedtwin import __version__
from fedtwin.config import Config, Identity, build_config, config_hash, identity_of, replace_settings
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.stationary import StationaryCosts, stationary_costs
from fedtwin.learning.evaluation import Evaluation
from fedtwin.sim import Result, Series, run_summary, simulate

Packed = dict[str, Any]
Line = dict[str, Any]
ONE_THREAD = {"learning.executor": "serial"}


@dataclass(frozen=True)
class Job:
    """One run without records, with the rounds at which its series is sampled; ``stationary`` adds the best stationary cost."""

    config: Config
    checkpoints: tuple[int, ...] = ()
    stationary: bool = False

    @cached_property
    def key(self) -> str:
        """Names the run: the same key, the same numbers."""
        text = f"{__version__} {config_hash(self.config)} {self.checkpoints} {self.stationary}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def on_gpu(self) -> bool:
        return self.config.learning is not None and self.config.learning.executor == "cuda"


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run."""

    summary: dict[str, Any]
    series: Series
    stationary: StationaryCosts | None = None
    evaluations: tuple[Evaluation, ...] = ()


def pack(job: Job) -> Packed:
    """A job as plain data for another process."""
    return {
        "key": job.key,
        "config": job.config.model_dump(mode="json", exclude_none=True),
        "checkpoints": job.checkpoints,
        "stationary": job.stationary,
    }


def unpack(packed: Packed) -> Job:
    return Job(build_config(packed["config"], {}), tuple(packed["checkpoints"]), packed["stationary"])


def run_packed(packed: Packed, of_training: Mapping[str, Any] | None = None) -> Line:
    """Does one run. ``of_training`` are settings of a training run that change its speed but no number."""
    job = unpack(packed)
    config = job.config
    identity = identity_of(config)
    quick = replace_settings(config, of_training) if of_training and config.learning is not None else config
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedtwinWarning)
        result = simulate(quick, records=False, checkpoints=job.checkpoints)
    return line_of(packed["key"], config, result, identity, stationary_costs(config) if job.stationary else None)


def weight(packed: Packed) -> int:
    """How long a run takes compared with others of its batch, roughly."""
    return int(packed["config"]["run"]["rounds"]) * int(packed["config"]["fleet"]["devices"])


def run_chunk(chunk: Sequence[Packed]) -> tuple[list[Line], float]:
    """Does several runs one after the other in a worker. Also gives their pace, in seconds per weight."""
    began = time.perf_counter()
    lines = [run_packed(packed, ONE_THREAD) for packed in chunk]
    return lines, (time.perf_counter() - began) / max(1, sum(map(weight, chunk)))


def line_of(key: str, config: Config, result: Result, identity: Identity, stationary: StationaryCosts | None = None) -> Line:
    """A finished run as one line of the journal."""
    return {
        "key": key,
        "summary": run_summary(config, result.summary, identity),
        "series": asdict(result.series),
        "stationary": asdict(stationary) if stationary else None,
        "evaluations": result.evaluations,
    }


def outcome_of(line: Line) -> Outcome:
    stationary = line["stationary"]
    return Outcome(
        line["summary"],
        Series(**line["series"]),
        StationaryCosts(**stationary) if stationary else None,
        tuple(Evaluation(*row) for row in line["evaluations"]),
    )


def with_selections(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The same outcomes; a run in which every device always declined has no means to compare, which is an error."""
    for outcome in outcomes:
        if outcome.summary["rounds"] == 0:
            scheme, seed = outcome.summary["scheme"], outcome.summary["seed"]
            raise FedtwinError(f"{scheme} with run.seed = {seed} made no selection: every device declined every round.")
    return list(outcomes)
