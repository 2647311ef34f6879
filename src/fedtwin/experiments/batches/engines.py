"""Which engine does the runs of a batch: compiling is worth it for many runs together where it is not for each."""

import warnings
from collections import defaultdict
from collections.abc import Sequence

from fedtwin.config import Config, replace_settings
from fedtwin.errors import CannotCompileError, EnginesDifferError, FedtwinWarning
from fedtwin.experiments.batches.job import Job, Packed, pack
from fedtwin.policies import power_rule
from fedtwin.sim import engine_for, readable_seconds, simulate

Kind = tuple[str | None, ...]


def packed_with_engines(jobs: Sequence[Job], until_s: float | None = None) -> list[Packed]:
    """The jobs as plain data; ``run.engine = "auto"`` is decided for all runs of a kind together. No number depends on it."""
    work_s: dict[Kind, float] = defaultdict(float)
    for job in jobs:
        work_s[_kind(job.config)] += readable_seconds(job.config)
    engines = {kind: _engine(jobs, kind, seconds) for kind, seconds in work_s.items()}
    packed = [pack(job, until_s) for job in jobs]
    for job, data in zip(jobs, packed, strict=True):
        if _is_open(job.config):
            data["config"]["run"]["engine"] = engines[_kind(job.config)]
    return packed


def _kind(config: Config) -> Kind:
    """Runs of a kind are served by the same compiled code."""
    world = config.world
    parts = (world.channel, world.load, world.availability, world.sensing)
    return config.policy.name, config.code.folder, power_rule(config), config.run.mode, config.twin.gain, *parts


def _engine(jobs: Sequence[Job], kind: Kind, work_s: float) -> str:
    """Compiles in this process what is not compiled yet, so that the workers find it."""
    config = next((job.config for job in jobs if _kind(job.config) == kind and _is_open(job.config)), None)
    if config is None or engine_for(config, work_s=work_s) == "readable":
        return "auto"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FedtwinWarning)
            simulate(replace_settings(config, {"run.engine": "compiled", "run.rounds": 1}), records=False)
    except EnginesDifferError as error:
        warnings.warn(f"{error} It is run that way.", FedtwinWarning, stacklevel=4)
        return "readable"
    except CannotCompileError:
        return "readable"
    except (Exception, SystemExit):  # every run that fails says why itself
        return "auto"
    return "compiled"


def _is_open(config: Config) -> bool:
    return config.run.engine == "auto" and config.learning is None
