"""Where the runs of a batch are computed: in this process, or in worker processes; a Ray cluster is in ``ray_backend``.

Runs travel in chunks of about a tenth of a second, so that neither a message nor a write to disk is paid for each of them.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Protocol, TypeVar

from fedtwin.errors import FedtwinError
from fedtwin.experiments.job import Line, Packed, run_chunk, run_packed, weight
from fedtwin.processes import die_with_the_parent, interrupts_left_to_the_parent

CHUNK_S = 0.1
MOST_RUNS_IN_A_CHUNK = 256
CHUNKS_PER_WORKER = 2
TRY_HERE_S = 0.5
SHORT = 20_000 * 30
Done = tuple[list[Line], float]
Ticket = TypeVar("Ticket")


class Backend(Protocol):
    """Does runs. No number depends on which one it is; ``here`` says whether it uses this machine and its GPU."""

    here: bool

    def run(self, runs: Sequence[Packed]) -> Iterator[list[Line]]:
        """Every run, some at a time, in whatever order they finish."""

    def close(self) -> None:
        """Ends the workers."""


def default_workers() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def open_backend(workers: int | None = None, ray: str | None = None) -> Iterator[Backend]:
    """Worker processes, kept until the end; with ``ray`` the cluster at that address, or one started here (``local``)."""
    backend: Backend
    if ray is not None:
        from fedtwin.experiments.ray_backend import RayBackend

        backend = RayBackend(ray, workers)
    else:
        backend = LocalBackend(workers or default_workers())
    try:
        yield backend
    finally:
        backend.close()


class LocalBackend:
    """Worker processes, started when they are first worth it, and kept. One worker is this process."""

    here = True

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def run(self, runs: Sequence[Packed]) -> Iterator[list[Line]]:
        if self._workers == 1 or len(runs) < 2:
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
            yield from in_chunks(runs[done:], lambda: self._workers, self._submit, _collect)
        except BrokenProcessPool:
            self._terminate()
            raise FedtwinError("A worker process was killed, perhaps for want of memory: try fewer --workers.") from None
        except BaseException:
            self._terminate()
            raise

    def start(self) -> None:
        """Starts all workers now and waits until they are ready."""
        wait([self._submit([]) for _ in range(self._workers if self._workers > 1 else 0)])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _submit(self, chunk: Sequence[Packed]) -> "Future[Done]":
        with interrupts_left_to_the_parent():
            if self._pool is None:
                context = get_context("spawn")
                self._pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=die_with_the_parent)
            return self._pool.submit(run_chunk, chunk)

    def _terminate(self) -> None:
        for process in active_children():
            process.terminate()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def run_here(runs: Sequence[Packed], only_short_for_s: float | None = None) -> Iterator[list[Line]]:
    """Runs in this process. With a limit it stops after so many seconds, and before a run that may be long."""
    lines: list[Line] = []
    began = told = time.perf_counter()
    for packed in runs:
        if only_short_for_s is not None and (told - began > only_short_for_s or not _is_short(packed)):
            break
        lines.append(run_packed(packed))
        now = time.perf_counter()
        if now - told > CHUNK_S:
            yield lines
            lines, told = [], now
    if lines:
        yield lines


def _is_short(packed: Packed) -> bool:
    return weight(packed) <= SHORT and "learning" not in packed["config"] and not packed["stationary"]


def in_chunks(
    runs: Sequence[Packed],
    workers: Callable[[], int],
    submit: Callable[[Sequence[Packed]], Ticket],
    collect: Callable[[set[Ticket]], tuple[list[Done], set[Ticket]]],
) -> Iterator[list[Line]]:
    """Gives every worker a chunk and one in waiting. ``collect`` waits for some tickets and gives the others back."""
    left = deque(runs)
    pace: float | None = None
    flying: set[Ticket] = set()
    while left or flying:
        count = workers()
        while left and len(flying) < CHUNKS_PER_WORKER * count:
            flying.add(submit(_next_chunk(left, count, pace)))
        finished, flying = collect(flying)
        pace = max(pace for _, pace in finished)
        yield [line for lines, _ in finished for line in lines]


def _next_chunk(left: deque[Packed], workers: int, pace: float | None) -> list[Packed]:
    """The next runs, as many as take ``CHUNK_S`` at this pace, and no more than leaves something for every worker."""
    most = 1 if pace is None else min(MOST_RUNS_IN_A_CHUNK, len(left) // (CHUNKS_PER_WORKER * workers))
    chunk = [left.popleft()]
    seconds = (pace or 0.0) * weight(chunk[0])
    while len(chunk) < most and (seconds := seconds + (pace or 0.0) * weight(left[0])) <= CHUNK_S:
        chunk.append(left.popleft())
    return chunk


def _collect(flying: "set[Future[Done]]") -> "tuple[list[Done], set[Future[Done]]]":
    finished, others = wait(flying, return_when=FIRST_COMPLETED)
    return [future.result() for future in finished], others
