"""Worker processes that may die: a pool that broke is replaced, and the runs it had are done again apart from each other."""

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.batches.job import Done, Line, Packed, line_of_failure, run_chunk
from fedtwin.processes import die_with_the_parent, interrupts_left_to_the_parent, script_left_to_the_parent

Pool = ProcessPoolExecutor
_here = {"is_a_worker": False}
KILLED = "Its worker process was killed, perhaps for want of memory"


def _begin() -> None:
    """The first thing that a worker does."""
    _here["is_a_worker"] = True
    die_with_the_parent()


def require_no_worker() -> None:
    """A script that a worker imports for a policy in it must not start the batch again there, and its workers again."""
    if _here["is_a_worker"]:
        raise FedtwinError(
            "a worker process imports this code, which starts runs: put what starts runs under if __name__ == '__main__', "
            "or the policy or model into a module of its own."
        )


def give(pool: Pool | None, workers: int, chunk: Sequence[Packed]) -> "tuple[Pool, Future[Done]]":
    """Submits runs to a pool of so many workers, or to a new one if there is none or it is broken; gives the pool too."""
    with interrupts_left_to_the_parent(), script_left_to_the_parent():
        if pool is not None:
            try:
                return pool, pool.submit(run_chunk, chunk)
            except BrokenProcessPool:
                pool = None
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)
        return pool, pool.submit(run_chunk, chunk)


def require_that_workers_start() -> None:
    """A worker that dies without any work is no run's fault."""
    pool, future = give(None, 1, [])
    try:
        future.result()
    except BrokenProcessPool:
        raise FedtwinError("Worker processes end before they do anything: try one worker (--workers 1, workers=1).") from None
    finally:
        pool.shutdown()


def each_apart(suspects: Sequence[Packed], workers: int) -> Iterator[list[Line]]:
    """Runs that were under way when a worker died, each in a process that does nothing else meanwhile.

    Those that die there have one more try, all alone. Those that die again have failed.
    """
    if not suspects:
        return
    sentence = "A worker process was killed, perhaps for want of memory (then try fewer workers)"
    more = f"{len(suspects)} that were under way are done again, each in a process of its own"
    warnings.warn(f"{sentence}. Of the runs, {more}.", FedtwinWarning, stacklevel=2)
    died: list[Packed] = []
    yield from _in_lanes(suspects, workers, died)
    failed: list[Packed] = []
    yield from _in_lanes(died, 1, failed)
    if failed:
        yield [line_of_failure(packed["key"], f"{KILLED}.") for packed in failed]


def _in_lanes(runs: Sequence[Packed], lanes: int, died: list[Packed]) -> Iterator[list[Line]]:
    """So many runs at a time, each with a process of its own; adds to ``died`` those that ended theirs."""
    left, idle = deque(runs), deque[Pool | None]([None] * min(lanes, len(runs)))
    flying: dict[Future[Done], tuple[Pool, Packed]] = {}
    while left or flying:
        while left and idle:
            packed = left.popleft()
            pool, future = give(idle.popleft(), 1, [packed])
            flying[future] = pool, packed
        for future in wait(flying, return_when=FIRST_COMPLETED).done:
            pool, packed = flying.pop(future)
            idle.append(pool)
            try:
                lines, _ = future.result()
            except BrokenProcessPool:
                died.append(packed)
            else:
                yield lines
    for one in idle:
        if one is not None:
            one.shutdown()
