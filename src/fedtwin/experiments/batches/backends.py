"""Where the runs of a batch are computed: in this process, or in worker processes; a Ray cluster is in ``ray_backend``.

Runs travel in chunks of about a tenth of a second, so that neither a message nor a write to disk is paid for each of them.
A run that fails is a line like the others. Where a worker dies, all runs under way are suspects: they are done again, each in
a process of its own, and only those that die there too have failed.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from multiprocessing import active_children
from typing import Protocol, TypeVar

from fedtwin.experiments.batches.gpu import lines_on_gpu
from fedtwin.experiments.batches.job import Done, Job, Line, Packed, run_packed, too_late, weight
from fedtwin.experiments.batches.pools import each_apart, give, require_that_workers_start
from fedtwin.given import workers_given, wrong_kind
from fedtwin.usercode import only_here

CHUNK_S = 0.1
MOST_RUNS_IN_A_CHUNK = 256
CHUNKS_PER_WORKER = 2
TRY_HERE_S = 0.5
SHORT = 20_000 * 30
Ticket = TypeVar("Ticket")


class Backend(Protocol):
    """Does runs. No number depends on which one it is."""

    def run(self, runs: Sequence[Packed]) -> Iterator[list[Line]]:
        """Every run, some at a time, in whatever order they finish."""

    def train_on_gpus(self, jobs: Sequence[Job], until_s: float | None = None) -> Generator[list[Line], None, None]:
        """Every run with ``learning.executor = "cuda"``, likewise. None begins after ``until_s``."""

    def require_gpus(self) -> None:
        """An error where such runs have no place at all."""

    def close(self) -> None:
        """Ends the workers."""


def default_workers() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def open_backend(workers: int | None = None, ray: str | None = None) -> Iterator[Backend]:
    """Worker processes, kept until the end; with ``ray`` the cluster at that address, or one started here (``local``)."""
    backend: Backend
    workers = workers_given(workers)
    if ray is not None and not isinstance(ray, str):
        raise wrong_kind("ray", ray, "an address, auto or local")
    if ray is not None:
        from fedtwin.experiments.batches.ray_backend import RayBackend

        backend = RayBackend(ray, workers)
    else:
        backend = LocalBackend(workers or default_workers())
    try:
        yield backend
    finally:
        backend.close()


class LocalBackend:
    """Worker processes, started when they are first worth it, and kept. One worker is this process.

    Code that is in the user's script itself (``__main__:name``) is nowhere else, and so is run in this process too.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._chunks: dict[Future[Done], Sequence[Packed]] = {}
        self._suspects: list[Packed] = []

    def run(self, runs: Sequence[Packed]) -> Iterator[list[Line]]:
        if self._workers == 1 or any(map(_is_of_the_script, runs)) or (len(runs) < 2 and all(map(_is_harmless, runs))):
            yield from run_here(runs)
            return
        done = 0
        if self._pool is None:
            for lines in run_here(runs, only_short_for_s=TRY_HERE_S):
                done += len(lines)
                yield lines
        if done == len(runs):
            return
        try:
            yield from in_chunks(runs[done:], lambda: self._workers, self._submit, self._collect)
            suspects, self._suspects = self._suspects, []
            yield from each_apart(suspects, self._workers)
        except BaseException:
            self._terminate()
            raise

    def train_on_gpus(self, jobs: Sequence[Job], until_s: float | None = None) -> Generator[list[Line], None, None]:
        with closing(lines_on_gpu(jobs, until_s)) as lines:
            yield from ([line] for line in lines)

    def require_gpus(self) -> None:
        """Where this machine has none, each run says so."""

    def start(self) -> None:
        """Starts all workers now and waits until they are ready."""
        wait([self._submit([]) for _ in range(self._workers if self._workers > 1 else 0)])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _submit(self, chunk: Sequence[Packed]) -> "Future[Done]":
        self._pool, future = give(self._pool, self._workers, chunk)
        self._chunks[future] = chunk
        return future

    def _collect(self, flying: "set[Future[Done]]") -> "tuple[list[Done], set[Future[Done]]]":
        finished, others = wait(flying, return_when=FIRST_COMPLETED)
        done = []
        for future in finished:
            chunk = self._chunks.pop(future)
            try:
                done.append(future.result())
            except BrokenProcessPool:
                if not self._suspects:
                    require_that_workers_start()
                self._suspects += chunk
        return done, others

    def _terminate(self) -> None:
        for process in active_children():
            process.terminate()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self._chunks.clear()
        self._suspects.clear()


def run_here(runs: Sequence[Packed], only_short_for_s: float | None = None) -> Iterator[list[Line]]:
    """Runs in this process. With a limit it stops after so many seconds, and before a run that may be long."""
    lines: list[Line] = []
    began = told = time.perf_counter()
    for packed in runs:
        if only_short_for_s is not None and (told - began > only_short_for_s or not _is_short(packed)):
            break
        if too_late(packed["until_s"]):
            break
        lines.append(run_packed(packed))
        now = time.perf_counter()
        if now - told > CHUNK_S:
            yield lines
            lines, told = [], now
    if lines:
        yield lines


def _is_short(packed: Packed) -> bool:
    brief = weight(packed) <= SHORT and "learning" not in packed["config"] and not packed["stationary"]
    return brief and _is_harmless(packed)


def _is_harmless(packed: Packed) -> bool:
    """It cannot end this process; a policy of the user's own might."""
    return ":" not in packed["config"]["policy"]["name"]


def _is_of_the_script(packed: Packed) -> bool:
    config = packed["config"]
    names = (config["policy"]["name"], config.get("learning", {}).get("model", ""))
    return any(name.startswith("__main__:") or only_here(name) for name in names)


def in_chunks(
    runs: Sequence[Packed],
    workers: Callable[[], int],
    submit: Callable[[Sequence[Packed]], Ticket],
    collect: Callable[[set[Ticket]], tuple[list[Done], set[Ticket]]],
    most: int = MOST_RUNS_IN_A_CHUNK,
) -> Iterator[list[Line]]:
    """Gives every worker a chunk and one in waiting. ``collect`` waits for some tickets and gives the others back.

    What it does not give back and has not done is its own affair.
    """
    left = deque(runs)
    pace: float | None = None
    flying: set[Ticket] = set()
    while left or flying:
        count = workers()
        while left and len(flying) < CHUNKS_PER_WORKER * count:
            flying.add(submit(_next_chunk(left, count, pace, most)))
        finished, flying = collect(flying)
        pace = max((pace for _, pace in finished), default=pace)
        yield [line for lines, _ in finished for line in lines]


def _next_chunk(left: deque[Packed], workers: int, pace: float | None, most: int) -> list[Packed]:
    """The next runs, as many as take ``CHUNK_S`` at this pace, and no more than leaves something for every worker."""
    most = 1 if pace is None else min(most, len(left) // (CHUNKS_PER_WORKER * workers))
    chunk = [left.popleft()]
    seconds = (pace or 0.0) * weight(chunk[0])
    while len(chunk) < most and (seconds := seconds + (pace or 0.0) * weight(left[0])) <= CHUNK_S:
        chunk.append(left.popleft())
    return chunk
