"""One single-threaded worker per core. A training begins as soon as its device has downloaded, so the workers are never idle
while anything is in flight; weights travel through shared memory."""

import queue
from contextlib import nullcontext
from multiprocessing import get_context, shared_memory
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np

from fedtwin.errors import FedtwinError
from fedtwin.learning.executors.base import Workload
from fedtwin.learning.layout import Layout, Weights
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Evaluated, Trained
from fedtwin.processes import die_with_the_parent, interrupts_left_to_the_parent, script_left_to_the_parent

EVALUATIONS_AT_ONCE = 2
POLL_S = 1.0
LOOK = (None, None, None)
"""A task for every worker: it looks whether what it trains remembers anything, and waits for the others."""


class Slots:
    """Models in shared memory, one per task under way."""

    def __init__(self, layout: Layout, count: int, name: str | None = None) -> None:
        self._floats, self._counters = layout.float_size, layout.counter_size
        self._bytes = -(-(4 * self._floats + 8 * self._counters) // 64) * 64
        size = max(1, self._bytes * count)
        self._memory = shared_memory.SharedMemory(name, create=name is None, size=size if name is None else 0)
        self._owner = name is None
        self.name = self._memory.name

    def view(self, slot: int) -> Weights:
        at = slot * self._bytes
        counters_at = at + self._bytes - 8 * self._counters
        return Weights(
            np.ndarray(self._floats, np.float32, self._memory.buf, at),
            np.ndarray(self._counters, np.int64, self._memory.buf, counters_at),
        )

    def put(self, slot: int, weights: Weights) -> None:
        view = self.view(slot)
        view.floats[:] = weights.floats
        view.counters[:] = weights.counters

    def take(self, slot: int) -> Weights:
        view = self.view(slot)
        return Weights(view.floats.copy(), view.counters.copy())

    def close(self) -> None:
        self._memory.close()
        if self._owner:
            self._memory.unlink()


class ProcessExecutor:
    """A pool that keeps every core busy and gives results by key."""

    def __init__(self, workload: Workload, workers: int) -> None:
        layout, _ = workload.initial()
        self._free = list(range(workload.channels + workers + EVALUATIONS_AT_ONCE))
        self._slots = Slots(layout, len(self._free))
        self._slot_of: dict[int, int] = {}
        self._done: dict[int, Any] = {}
        self._waiting: list[tuple[int, Weights, Lesson | None]] = []
        self._looks, self._watched = 0, bool(workload.learning.own_code)
        context = get_context("spawn")
        self._tasks, self._results = context.Queue(), context.Queue()
        self._everybody = context.Barrier(workers)
        given = (workload, self._slots.name, self._tasks, self._results, self._everybody)
        self._processes = [context.Process(target=_work, args=given, daemon=True) for _ in range(workers)]
        needs_the_script = any(name.startswith("__main__:") for name in workload.learning.own_code.values())
        with interrupts_left_to_the_parent(), nullcontext() if needs_the_script else script_left_to_the_parent():
            for process in self._processes:
                process.start()

    def adopt(self, weights: Weights) -> Weights:
        return weights

    def host(self, weights: Weights) -> Weights:
        return weights

    def submit(self, key: int, start: Weights, lesson: Lesson) -> None:
        self._waiting.append((key, start, lesson))
        self._feed()

    def submit_evaluation(self, key: int, weights: Weights) -> None:
        self._waiting.append((key, weights, None))
        self._feed()

    def result(self, key: int) -> Trained:
        while key not in self._done:
            self._collect()
        done: Trained = self._done.pop(key)
        return done

    def evaluation(self, key: int) -> Evaluated:
        while key not in self._done:
            self._collect()
        done: Evaluated = self._done.pop(key)
        return done

    def require_no_memory(self) -> None:
        """Every worker looks, once it has done what was asked before."""
        if not self._watched:
            return
        self._looks = len(self._processes)
        for _ in self._processes:
            self._tasks.put(LOOK)
        while self._looks:
            self._collect()

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()
        self._tasks.cancel_join_thread()
        self._results.cancel_join_thread()
        self._slots.close()

    def _feed(self) -> None:
        """Tasks go out in the order they came, while there are slots."""
        while self._waiting and self._free:
            key, weights, lesson = self._waiting.pop(0)
            slot = self._slot_of[key] = self._free.pop()
            self._slots.put(slot, weights)
            self._tasks.put((key, slot, lesson))

    def _collect(self) -> None:
        try:
            key, outcome = self._results.get(timeout=POLL_S)
        except queue.Empty:
            if not all(process.is_alive() for process in self._processes):
                raise FedtwinError(
                    "A training worker ended unexpectedly: out of memory, or a script that trains outside "
                    "`if __name__ == '__main__':`."
                ) from None
            return
        if isinstance(outcome, FedtwinError):
            raise outcome
        if isinstance(outcome, str):
            raise FedtwinError(f"A training worker failed: {outcome}.")
        if key is None:
            self._looks -= 1
            return
        slot = self._slot_of.pop(key)
        if isinstance(outcome, Evaluated):
            self._done[key] = outcome
        else:
            self._done[key] = Trained(self._slots.take(slot), *outcome)
        self._free.append(slot)
        self._feed()


class _Worker:
    """The trainer of one process, whose models come and go through slots."""

    def __init__(self, workload: Workload, slots_name: str) -> None:
        workload.require_the_same_code()
        self._trainer = workload.watched_trainer()
        self._slots = Slots(workload.initial()[0], 0, slots_name)

    def do(self, slot: int | None, lesson: Lesson | None) -> Any:
        if slot is None:
            return self._trainer.require_no_memory()
        if lesson is None:
            return self._trainer.evaluate(self._slots.view(slot))
        trained = self._trainer.train(self._slots.view(slot), lesson)
        self._slots.put(slot, trained.weights)
        return trained.train_loss, trained.finite


def _work(workload: Workload, slots_name: str, tasks: Any, results: Any, everybody: Barrier) -> None:
    """A worker: takes a task, trains in its slot, and dies with its parent."""
    import torch

    die_with_the_parent()
    torch.set_num_threads(1)
    worker = None
    while True:
        key, slot, lesson = tasks.get()
        try:
            if worker is None and key is not None:
                worker = _Worker(workload, slots_name)
            results.put((key, None if worker is None else worker.do(slot, lesson)))
        except FedtwinError as error:
            results.put((key, error))
        except Exception as error:
            results.put((key, f"{type(error).__name__}: {error}".replace("\n", " ")))
        if key is None:
            everybody.wait()
