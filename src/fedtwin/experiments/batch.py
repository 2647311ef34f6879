"""Many runs. No number depends on where they are computed, by how many workers, or in which order they finish.

With a journal, a finished run is on disk before it is shown as finished; the same batch started again after an interruption
goes on from there.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.backends import Backend, open_backend
from fedtwin.experiments.engines import packed_with_engines
from fedtwin.experiments.gpu import simulate_on_gpu
from fedtwin.experiments.job import Job, Line, Outcome, line_of, outcome_of, with_selections
from fedtwin.experiments.journal import open_journal, read_journal
from fedtwin.learning.notices import notices_of
from fedtwin.sim import impossible_min_mean_samples

__all__ = ["Backend", "Job", "Outcome", "Progress", "open_backend", "require_a_gpu_here", "run_batch", "with_selections"]

Progress = Callable[[int], None]


def run_batch(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    backend: Backend | None = None,
    journal: Path | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """The outcome of every job, in the order of the jobs. ``progress`` hears how many more have finished.

    A backend that serves several batches is opened by the caller; otherwise ``workers`` processes serve this one.
    """
    require_a_gpu_here(jobs, backend)
    _warn_once(jobs)
    times = Counter(job.key for job in jobs)
    done = {key: line for key, line in read_journal(journal).items() if key in times}
    _tell(progress, sum(times[key] for key in done))
    left = list({job.key: job for job in jobs if job.key not in done}.values())
    opened = nullcontext(backend) if backend is not None else open_backend(workers)
    with open_journal(journal) as write, opened as here_or_there:
        for lines in _run_all(left, here_or_there):
            write(lines)
            done.update((line["key"], line) for line in lines)
            _tell(progress, sum(times[line["key"]] for line in lines))
    return [outcome_of(done[job.key]) for job in jobs]


def require_a_gpu_here(jobs: Sequence[Job], backend: Backend | None) -> None:
    """Runs that share one GPU are not for other machines."""
    if backend is not None and not backend.here and any(job.on_gpu for job in jobs):
        raise FedtwinError("learning.executor = 'cuda' is for the GPU of this machine, not for Ray: leave --ray out.")


def _run_all(jobs: Sequence[Job], backend: Backend) -> Iterator[list[Line]]:
    on_gpu = [job for job in jobs if job.on_gpu]
    for place, result in simulate_on_gpu([job.config for job in on_gpu]):
        yield [line_of(on_gpu[place].key, on_gpu[place].config, result, result.identity)]
    yield from backend.run(packed_with_engines([job for job in jobs if not job.on_gpu]))


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
    for sentence in _of_the_data(jobs):
        warnings.warn(sentence, FedtwinWarning, stacklevel=3)


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


def _tell(progress: Progress | None, more: int) -> None:
    if progress is not None and more:
        progress(more)
