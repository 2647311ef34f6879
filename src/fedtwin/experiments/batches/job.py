"""One run of a batch: as a job, as plain data for another process, and as the line that is kept of it."""

import hashlib
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedtwin import __version__
from fedtwin.config import Config, Identity, build_config, config_hash, identity_of, replace_settings
from fedtwin.errors import EnginesDifferError, FedtwinError, FedtwinWarning
from fedtwin.experiments.analysis.queues import longest_queues
from fedtwin.experiments.analysis.stationary import StationaryCosts, stationary_costs
from fedtwin.learning.evaluation import Evaluation
from fedtwin.policies import scheme_name
from fedtwin.sim import Result, Series, run_summary, simulate
from fedtwin.sim.limits import sentence_of_declines
from fedtwin.usercode import sentence_of_error

if TYPE_CHECKING:
    from fedtwin.learning.probe import Constants, Probe

Packed = dict[str, Any]
Line = dict[str, Any]
Done = tuple[list[Line], float]
ONE_THREAD = {"learning.executor": "serial"}
SAID_BY_THE_SCHEME = ("policy.name", "run.mode", "run.seed")
MOST_LETTERS = 500


@dataclass(frozen=True)
class Job:
    """One run, of which no records are kept, with the rounds at which its series is sampled.

    ``stationary`` adds the best stationary cost, ``queues`` the longest queue at every point of the series, ``constants``
    those of Theorem 1 as they are met in a training run.
    """

    config: Config
    checkpoints: tuple[int, ...] = ()
    stationary: bool = False
    queues: bool = False
    constants: bool = False

    @cached_property
    def key(self) -> str:
        """Names the run: the same key, the same numbers."""
        more = f"{' queues' * self.queues}{' constants' * self.constants}"
        text = f"{__version__} {config_hash(self.config)} {self.checkpoints} {self.stationary}{more}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def on_gpu(self) -> bool:
        return self.config.learning is not None and self.config.learning.executor == "cuda"


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run. One that failed has the reason for it, and no summary; one without a selection has both."""

    summary: dict[str, Any]
    series: Series
    stationary: StationaryCosts | None = None
    evaluations: tuple[Evaluation, ...] = ()
    failed: str | None = None
    constants: "Constants | None" = None

    @property
    def ran(self) -> bool:
        """It came to its end, and would come to the same again."""
        return bool(self.summary)


def pack(job: Job, until_s: float | None = None) -> Packed:
    """A job as plain data for another process. It must not begin after ``until_s`` on the clock of the system."""
    return {
        "until_s": until_s,
        "key": job.key,
        "config": job.config.model_dump(mode="json", exclude_none=True),
        "checkpoints": job.checkpoints,
        "stationary": job.stationary,
        "queues": job.queues,
        "constants": job.constants,
        "engine_is_open": job.config.run.engine == "auto",
    }


def unpack(packed: Packed) -> Job:
    config = build_config(packed["config"], {})
    return Job(config, tuple(packed["checkpoints"]), packed["stationary"], packed["queues"], packed["constants"])


def run_packed(packed: Packed, of_training: Mapping[str, Any] | None = None) -> Line:
    """Does one run; one that fails, in whatever way, is a line too.

    ``of_training`` are settings of a training run that change its speed but no number.
    """
    try:
        job = unpack(packed)
        config, identity = job.config, identity_of(job.config)
        if config.own_code and job.key != packed["key"]:
            raise FedtwinError("The code of the policy or model is not what it was when the command began: start it again.")
        quick = replace_settings(config, of_training) if of_training and config.learning is not None else config
        quick = replace_settings(quick, {"run.records": True}) if job.queues else quick
        probe = _probe_of(quick) if job.constants else None
        note = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FedtwinWarning)
            try:
                result = simulate(quick, records=job.queues, checkpoints=job.checkpoints, executor=probe)
            except EnginesDifferError as error:
                if not packed["engine_is_open"]:
                    raise
                note = f"{error} It is run that way."
                readable = replace_settings(quick, {"run.engine": "readable"})
                result = simulate(readable, records=job.queues, checkpoints=job.checkpoints)
        if job.queues:
            result = replace(result, series=replace(result.series, longest_queue=longest_queues(result)))
        stationary = stationary_costs(config) if job.stationary else None
        constants = {"constants": asdict(probe.constants)} if probe is not None else {}
        line = line_of(packed["key"], config, result, identity, stationary)
        return {**line, **constants, **({"note": note} if note else {})}
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return line_of_failure(packed["key"], reason_of(error))


def weight(packed: Packed) -> int:
    """How long a run takes compared with others of its batch, roughly."""
    return int(packed["config"]["run"]["rounds"]) * int(packed["config"]["fleet"]["devices"])


def too_late(until_s: float | None) -> bool:
    """For a run to begin."""
    return until_s is not None and time.time() > until_s


def run_chunk(chunk: Sequence[Packed]) -> Done:
    """Does several runs one after the other in a worker. Also gives their pace, in seconds per weight."""
    began = time.perf_counter()
    lines = [run_packed(packed, ONE_THREAD) for packed in chunk if not too_late(packed["until_s"])]
    return lines, (time.perf_counter() - began) / max(1, sum(map(weight, chunk)))


def line_of(key: str, config: Config, result: Result, identity: Identity, stationary: StationaryCosts | None = None) -> Line:
    """A finished run as one line of the journal."""
    return {
        "key": key,
        "summary": run_summary(config, result.summary, identity),
        "series": asdict(result.series),
        "stationary": asdict(stationary) if stationary else None,
        "evaluations": result.evaluations,
        "failed": why_nothing_was_trained(result) if result.summary.rounds == (result.summary.drops or 0) else None,
    }


def line_of_failure(key: str, reason: str) -> Line:
    """What a file can hold of the reason: a name from a folder, quoted in it, may be no text."""
    return {"key": key, "failed": reason.encode("utf-8", "backslashreplace").decode()}


def outcome_of(line: Line) -> Outcome:
    if "summary" not in line:
        return Outcome({}, Series(), failed=line_of_failure("", str(line["failed"]))["failed"])
    stationary = line["stationary"]
    return Outcome(
        line["summary"],
        Series(**line["series"]),
        StationaryCosts(**stationary) if stationary else None,
        tuple(Evaluation(*row) for row in line["evaluations"]),
        line["failed"],
        _constants_in(line),
    )


def _probe_of(config: Config) -> "Probe":
    from fedtwin.learning.data import load_dataset
    from fedtwin.learning.executors import make_workload
    from fedtwin.learning.probe import Probe

    if config.learning is None:
        raise FedtwinError("The constants of Theorem 1 are of runs that train a model: there is no [learning] section.")
    data = load_dataset(config.learning.dataset, config.learning)
    return Probe(make_workload(config, data.shape, data.outputs))


def _constants_in(line: Line) -> "Constants | None":
    if "constants" not in line:
        return None
    from fedtwin.learning.probe import Constants

    return Constants(**line["constants"])


def why_nothing_was_trained(result: Result) -> str:
    """Of a run in which every device always declined, or was dropped: the limit, and the value that would admit the fleet."""
    sentence = sentence_of_declines(result.config, result.summary)
    return sentence or "It made no selection: every device declined every round."


def reason_of(error: BaseException) -> str:
    """Why a run failed, in one sentence; an error that is not ours with the line of the user's code it came from."""
    if isinstance(error, FedtwinError):
        return str(error)
    return f"{sentence_of_error(error)[:MOST_LETTERS]}."


def words(config: Config) -> str:
    """Names a run to a person: its scheme, its seed, every setting that is not the default."""
    changed = config.model_dump(mode="json", exclude_defaults=True, exclude={"code"})
    flat = {f"{section}.{key}": value for section, keys in changed.items() for key, value in keys.items()}
    settings = [f"{name} = {value!r}" for name, value in flat.items() if name not in SAID_BY_THE_SCHEME]
    return ", ".join([scheme_name(config), f"seed {config.run.seed}", *settings])


def with_selections(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The same outcomes; a run in which every device always declined has no means to compare, which is an error."""
    for job, outcome in zip(jobs, outcomes, strict=True):
        if outcome.failed is not None:
            raise FedtwinError(f"{words(job.config)}: {outcome.failed}")
    return list(outcomes)
