"""Which engine does the runs of a batch: compiling is worth it for many runs together where it is not for each."""

import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from fedtwin.config import Config, replace_settings
from fedtwin.errors import CannotCompileError, FedtwinWarning
from fedtwin.experiments.job import Job
from fedtwin.policies import power_rule
from fedtwin.sim import engine_for, readable_seconds, simulate

Kind = tuple[str, str, str]


def with_engines(jobs: Sequence[Job]) -> list[Job]:
    """The same jobs, and no number of theirs another; ``run.engine = "auto"`` is decided for all runs of a kind together."""
    work_s: dict[Kind, float] = defaultdict(float)
    for job in jobs:
        work_s[_kind(job.config)] += readable_seconds(job.config)
    engines = {kind: _engine(jobs, kind, seconds) for kind, seconds in work_s.items()}
    return [_with_engine(job, engines[_kind(job.config)]) for job in jobs]


def _kind(config: Config) -> Kind:
    """Runs of a kind are served by the same compiled code."""
    return config.policy.name, power_rule(config), config.run.mode


def _engine(jobs: Sequence[Job], kind: Kind, work_s: float) -> str:
    """Compiles in this process what is not compiled yet, so that the workers find it."""
    config = next((job.config for job in jobs if _kind(job.config) == kind and _is_open(job.config)), None)
    if config is None or engine_for(config, work_s=work_s) == "readable":
        return "auto"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FedtwinWarning)
            simulate(replace_settings(config, {"run.engine": "compiled", "run.rounds": 1}), records=False)
    except CannotCompileError:
        return "readable"
    return "compiled"


def _with_engine(job: Job, engine: str) -> Job:
    return replace(job, config=replace_settings(job.config, {"run.engine": engine})) if _is_open(job.config) else job


def _is_open(config: Config) -> bool:
    return config.run.engine == "auto" and config.learning is None
