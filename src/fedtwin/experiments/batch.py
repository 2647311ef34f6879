"""Many runs on all cores. No number depends on how many workers there are or in which order they finish.

With a journal, every finished run is one line of a file, on disk before the next begins; the same batch started again
after an interruption goes on from there.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from fedtwin import __version__
from fedtwin.config import Config, build_config, config_hash, replace_settings
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.gpu import simulate_on_gpu
from fedtwin.experiments.stationary import StationaryCosts, stationary_costs
from fedtwin.learning.evaluation import Evaluation
from fedtwin.processes import die_with_the_parent, interrupts_left_to_the_parent
from fedtwin.records.lock import Lock
from fedtwin.sim import Result, Series, impossible_min_mean_samples, run_summary, simulate

Progress = Callable[[], None]


@dataclass(frozen=True)
class Job:
    """One run without records, with the rounds at which its series is sampled; ``stationary`` adds the best stationary cost."""

    config: Config
    checkpoints: tuple[int, ...] = ()
    stationary: bool = False

    @property
    def key(self) -> str:
        text = f"{__version__} {config_hash(self.config)} {self.checkpoints} {self.stationary}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Outcome:
    """What is kept of a run."""

    summary: dict[str, Any]
    series: Series
    stationary: StationaryCosts | None = None
    evaluations: tuple[Evaluation, ...] = ()


def default_workers() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_batch(
    jobs: Sequence[Job], *, workers: int | None = None, journal: Path | None = None, progress: Progress | None = None
) -> list[Outcome]:
    """The outcome of every job, in the order of the jobs."""
    _warn_once(jobs)
    by_key = {job.key: job for job in jobs}
    done = {key: line for key, line in _read_journal(journal).items() if key in by_key}
    for _ in range(sum(job.key in done for job in jobs)):
        _tell(progress)
    with _open_journal(journal) as write:
        for line in _run_all([job for key, job in by_key.items() if key not in done], workers or default_workers()):
            write(line)
            done[line["key"]] = line
            for _ in range(sum(job.key == line["key"] for job in jobs)):
                _tell(progress)
    return [_outcome(_with_selections(done[job.key])) for job in jobs]


def _run_all(jobs: Sequence[Job], workers: int) -> Iterator[dict[str, Any]]:
    on_gpu = [job for job in jobs if job.config.learning is not None and job.config.learning.executor == "cuda"]
    for place, result in simulate_on_gpu([job.config for job in on_gpu]):
        yield _line(on_gpu[place].key, on_gpu[place].config, result, None)
    yield from _run_on_cpu([job for job in jobs if job not in on_gpu], workers)


def _run_on_cpu(jobs: Sequence[Job], workers: int) -> Iterator[dict[str, Any]]:
    if workers == 1 or len(jobs) < 2:
        yield from map(_run, map(_pack, jobs))
        return
    one_thread_each = {"learning.executor": "serial"}
    pool = ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn"), initializer=die_with_the_parent)
    try:
        with interrupts_left_to_the_parent():
            futures = [pool.submit(_run, _pack(job, one_thread_each)) for job in jobs]
        for future in as_completed(futures):
            yield future.result()
    except BaseException:
        for process in active_children():
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _pack(job: Job, of_training: dict[str, Any] | None = None) -> dict[str, Any]:
    """A job as plain data for another process; ``of_training`` are settings that change its speed but no number."""
    return {
        "key": job.key,
        "config": job.config.model_dump(mode="json", exclude_none=True),
        "overrides": of_training or {} if job.config.learning is not None else {},
        "checkpoints": job.checkpoints,
        "stationary": job.stationary,
    }


def _run(packed: dict[str, Any]) -> dict[str, Any]:
    config = build_config(packed["config"], {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedtwinWarning)
        result = simulate(replace_settings(config, packed["overrides"]), records=False, checkpoints=packed["checkpoints"])
    return _line(packed["key"], config, result, stationary_costs(config) if packed["stationary"] else None)


def _line(key: str, config: Config, result: Result, stationary: StationaryCosts | None) -> dict[str, Any]:
    """A finished run as one line of the journal."""
    return {
        "key": key,
        "summary": run_summary(config, result.summary),
        "series": asdict(result.series),
        "stationary": asdict(stationary) if stationary else None,
        "evaluations": result.evaluations,
    }


def _with_selections(line: dict[str, Any]) -> dict[str, Any]:
    """A run in which every device always declined has no means to compare."""
    if line["summary"]["rounds"] == 0:
        scheme, seed = line["summary"]["scheme"], line["summary"]["seed"]
        raise FedtwinError(f"{scheme} with run.seed = {seed} made no selection: every device declined every round.")
    return line


def _outcome(line: dict[str, Any]) -> Outcome:
    stationary = line["stationary"]
    return Outcome(
        line["summary"],
        Series(**line["series"]),
        StationaryCosts(**stationary) if stationary else None,
        tuple(Evaluation(*row) for row in line["evaluations"]),
    )


def _warn_once(jobs: Sequence[Job]) -> None:
    """The warnings of all the runs, each sentence once, before any work."""
    sentences = [sentence for job in jobs if (sentence := impossible_min_mean_samples(job.config))]
    if sentences:
        more = f" ({len(sentences)} of {len(jobs)} runs ask for too much.)" if len(sentences) > 1 else ""
        warnings.warn(sentences[0] + more, FedtwinWarning, stacklevel=3)


def _read_journal(journal: Path | None) -> dict[str, dict[str, Any]]:
    """Finished runs by key; a line cut short by a kill is no finished run."""
    if journal is None or not journal.exists():
        return {}
    lines = {}
    for text in journal.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        lines[line["key"]] = line
    return lines


@contextmanager
def _open_journal(journal: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    if journal is None:
        yield lambda _: None
        return
    try:
        journal.parent.mkdir(parents=True, exist_ok=True)
        file = journal.open("a", encoding="utf-8")
    except OSError as error:
        raise FedtwinError(f"{str(journal.parent)!r} cannot be written: {error.strerror}.") from None
    lock = Lock(journal.with_name(f"{journal.name}.lock"))
    with file, _released(lock):
        file.write("\n" if journal.stat().st_size else "")

        def write(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

        yield write


@contextmanager
def _released(lock: Lock) -> Iterator[None]:
    try:
        yield
    finally:
        lock.release()


def _tell(progress: Progress | None) -> None:
    if progress is not None:
        progress()
