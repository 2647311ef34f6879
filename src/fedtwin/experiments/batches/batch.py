"""Many runs. No number depends on where they are computed, by how many workers, or in which order they finish.

With a journal, a finished run is on disk before it is shown as finished; the same batch started again after an interruption
goes on from there. A run that fails ends the batch, with a sentence that names it, or is an outcome like the others.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from fedtwin.config import Config
from fedtwin.errors import FedtwinError, FedtwinWarning, NotFinishedError
from fedtwin.experiments.batches.allowance import Allowance
from fedtwin.experiments.batches.backends import Backend, open_backend
from fedtwin.experiments.batches.engines import packed_with_engines
from fedtwin.experiments.batches.job import (
    Job,
    Line,
    Outcome,
    outcome_of,
    too_late,
    with_selections,
    words,
)
from fedtwin.experiments.batches.journal import Journal, open_journal, read_journal
from fedtwin.experiments.batches.pools import require_no_worker
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.learning.charges import UploadSizes, undercharged_among
from fedtwin.learning.notices import never_gathered, notices_of, variances_out_of_bounds
from fedtwin.learning.passed_over import passed_over_among
from fedtwin.learning.rates import other_than_the_schedule
from fedtwin.records.files import CODE_NAME
from fedtwin.sim import impossible_min_mean_samples
from fedtwin.usercode import keep_sources

__all__ = [
    "Backend",
    "Job",
    "Outcome",
    "Progress",
    "begun",
    "keep_code",
    "open_backend",
    "require_gpus",
    "run_batch",
    "with_selections",
]

Progress = Callable[[int], None]


def run_batch(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    backend: Backend | None = None,
    journal: Path | None = None,
    progress: Progress | None = None,
    keep_failures: bool = False,
    retry_failed: bool = True,
    allowance: Allowance | None = None,
) -> list[Outcome]:
    """The outcome of every job, in the order of the jobs. ``progress`` hears how many more have finished.

    Runs are begun seed by seed. Where an ``allowance`` leaves some for a later call, that is a ``NotFinishedError``.

    A backend that serves several batches is opened by the caller; otherwise ``workers`` processes serve this one.
    With ``keep_failures`` a run that fails is an outcome, and not done again unless ``retry_failed``; otherwise it is an error.
    """
    require_no_worker()
    require_gpus(jobs, backend)
    jobs = _charged(jobs)
    _warn_once(jobs)
    times = Counter(job.key for job in jobs)
    found = read_journal(journal)
    _warn_of_damage(journal, found)
    done = {key: line for key, line in finished_in(found, retry_failed=retry_failed).items() if key in times}
    _tell(progress, sum(times[key] for key in done))
    allowance = allowance or Allowance()
    left = {job.key: job for job in sorted(jobs, key=lambda job: job.config.run.seed) if job.key not in done}
    notes: dict[str, None] = {}
    opened = nullcontext(backend) if backend is not None else open_backend(workers)
    with (
        open_journal(journal) as write,
        opened as here_or_there,
        closing(_run_all(allowance.taken(list(left.values())), here_or_there, allowance.until_s)) as finished,
    ):
        for lines in finished:
            kept = lines if keep_failures else [line for line in lines if outcome_of(line).ran]
            write(kept)
            done.update((line["key"], line) for line in kept)
            _tell(progress, sum(times[line["key"]] for line in kept))
            notes.update(dict.fromkeys(line["note"] for line in kept if "note" in line))
            for line in lines:
                if line["key"] not in done:
                    raise FedtwinError(_failure(left[line["key"]], line["failed"], journal))
    for note in notes:
        warnings.warn(note, FedtwinWarning, stacklevel=2)
    if not done.keys() >= times.keys():
        raise NotFinishedError(_unfinished(sum(times[key] for key in done), len(jobs), journal))
    return [outcome_of(done[job.key]) for job in jobs]


def keep_code(jobs: Sequence[Job], folder: Path) -> None:
    """The source of the user's code in these runs, beside their results, where a TOML in the folder finds it again."""
    for names, code_in in {(tuple(job.config.own_code.values()), job.config.code.folder) for job in jobs}:
        keep_sources(names, code_in, folder / CODE_NAME)


def begun(jobs: Sequence[Job], journal: Path | None, what: str, *, retry_failed: bool = True) -> str | None:
    """One sentence about what an earlier command has left to go on from; None where there is nothing."""
    finished = finished_in(read_journal(journal), retry_failed=retry_failed).keys()
    if not finished:
        return None
    kept = sum(job.key in finished for job in jobs)
    sentence = f"Going on: {kept} of {len(jobs)} runs are finished already"
    others = len(finished) - kept
    return f"{sentence}, and {others} finished ones are not of this {what} any more." if others else f"{sentence}."


def finished_in(journal: Journal, *, retry_failed: bool) -> dict[str, Line]:
    """The runs that need not be done again."""
    return {key: line for key, line in journal.lines.items() if not retry_failed or outcome_of(line).ran}


def require_gpus(jobs: Sequence[Job], backend: Backend | None) -> None:
    """Runs that train on a GPU go where there is one."""
    if backend is not None and any(job.on_gpu for job in jobs):
        backend.require_gpus()


def _run_all(jobs: Sequence[Job], backend: Backend, until_s: float | None) -> Generator[list[Line], None, None]:
    on_gpu = [job for job in jobs if job.on_gpu]
    if on_gpu:
        with closing(backend.train_on_gpus(on_gpu, until_s)) as trained:
            yield from trained
    if too_late(until_s):
        return
    yield from backend.run(packed_with_engines([job for job in jobs if not job.on_gpu], until_s))


def _charged(jobs: Sequence[Job]) -> list[Job]:
    """With the number of bits where a model says it."""
    sizes = UploadSizes()
    return [replace(job, config=sizes.charged(job.config)) if job.config.radio.update_bits == "model" else job for job in jobs]


def _warn_once(jobs: Sequence[Job]) -> None:
    """The warnings of all the runs, each sentence once, before any work."""
    known: dict[Hashable, str | None] = {}
    sentences = []
    for job in jobs:
        config = job.config
        asked = (config.fleet, config.run.seed, config.run.mode, config.objective.min_mean_samples)
        if asked not in known:
            known[asked] = impossible_min_mean_samples(config)
        if sentence := known[asked]:
            sentences.append(sentence)
    if sentences:
        more = f" ({len(sentences)} of {len(jobs)} runs ask for too much.)" if len(sentences) > 1 else ""
        warnings.warn(sentences[0] + more, FedtwinWarning, stacklevel=3)
    configs = [job.config for job in jobs]
    rates = dict.fromkeys(filter(None, map(other_than_the_schedule, configs)))
    rules = (*passed_over_among(configs), *_of_the_rules(configs))
    told = (*_of_the_data(jobs), *rules, *rates, *_of_the_networks(configs), undercharged_among(configs))
    for sentence in filter(None, told):
        warnings.warn(sentence, FedtwinWarning, stacklevel=3)


def _of_the_rules(configs: Sequence[Config]) -> list[str]:
    """Each sentence about a rule that gathers more than its run has once."""
    asked: dict[Hashable, Config] = {}
    for config in configs:
        if config.learning is not None:
            gathers = (config.learning.aggregation, config.learning.buffer_size, config.run.rounds, config.fleet.channels)
            asked.setdefault((*gathers, config.run.mode, config.code.folder), config)
    sentences: dict[str, None] = {}
    for config in asked.values():
        with suppress(FedtwinError):
            sentence = never_gathered(config, aggregation_of(config))
            sentences.update(dict.fromkeys([sentence] if sentence else []))
    return list(sentences)


def _of_the_networks(configs: Sequence[Config]) -> list[str]:
    """Each sentence about a rule and a network that do not suit each other once; what cannot be had is the run's affair."""
    sizes, asked = UploadSizes(), dict[Hashable, Config]()
    for config in configs:
        if config.learning is not None:
            asked.setdefault((config.learning.model_dump_json(), config.run.mode, config.code.folder), config)
    sentences: dict[str, None] = {}
    for config in asked.values():
        with suppress(FedtwinError, ImportError):
            rule = aggregation_of(config)
            if config.learning is not None and rule.extrapolates:
                sentence = variances_out_of_bounds(config.learning, rule, sizes.layout(config))
                sentences.update(dict.fromkeys([sentence] if sentence else []))
    return list(sentences)


def _of_the_data(jobs: Sequence[Job]) -> list[str]:
    """Each sentence about a data set and how it is dealt once; a data set that cannot be read is the affair of its runs."""
    seeds: dict[Hashable, Job] = {}
    for job in jobs:
        learning = job.config.learning
        if learning is not None:
            dealt = (learning.dataset, learning.partition, learning.dirichlet_gamma, learning.owned_samples)
            seeds.setdefault((*dealt, job.config.fleet.devices), job)
    sentences: dict[str, None] = {}
    for job in seeds.values():
        with suppress(FedtwinError):
            sentences.update(dict.fromkeys(notices_of(job.config)))
    return list(sentences)


def _warn_of_damage(journal: Path | None, found: Journal) -> None:
    if found.damaged:
        lines = "1 line" if found.damaged == 1 else f"{found.damaged} lines"
        sentence = f"{lines} of {str(journal)!r} {'is' if found.damaged == 1 else 'are'} damaged or of another format"
        warnings.warn(f"{sentence}: a run that is nowhere else in it is done again.", FedtwinWarning, stacklevel=3)


def _failure(job: Job, reason: str, journal: Path | None) -> str:
    kept = f" Finished runs are kept in {journal}." if journal is not None else ""
    return f"{words(job.config)}: {reason}{kept}"


def _unfinished(done: int, all_: int, journal: Path | None) -> str:
    kept = f"are kept in {str(journal)!r}: the same command goes on from there" if journal is not None else "are lost"
    return f"{done} of {all_} runs are finished and {kept}."


def _tell(progress: Progress | None, more: int) -> None:
    if progress is not None and more:
        progress(more)
