"""Local training on one GPU, late and together: nothing is trained before its result is due, then all that is due is.

A GPU is busy only when many clients train at once. Several runs (seeds and schemes of a comparison) therefore share one hub,
each from a thread of its own: a batch is begun when half of the unfinished runs wait for results, and holds all of theirs. The
other half goes on with its schedules meanwhile, and begins a batch behind it, so that the GPU hardly waits. Models stay there.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import cast

import torch

from fedtwin.errors import FedtwinError
from fedtwin.learning.executors.base import Workload
from fedtwin.learning.executors.cuda_flat import Task, Trainer
from fedtwin.learning.executors.cuda_trainers import Precision, make_trainer
from fedtwin.learning.layout import Weights
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Evaluated, Trained

Key = tuple[int, int]
MOST_BATCHES = 2
"""Under way at a time: the one that the GPU is at, and the one that comes next."""


class Hub:
    """Gathers the tasks of several runs, and has those of the waiting ones done together.

    All ``runs`` executors must be in use at the same time: a run that has not begun is one that the others wait for.
    """

    def __init__(self, trainer: Trainer, runs: int = 1) -> None:
        self._trainer: Trainer | None = trainer
        self._changed = Condition()
        self._runs = self._unfinished = runs
        self._given = 0
        self._tasks: dict[Key, Task] = {}
        self._models: dict[Key, Weights] = {}
        self._under_way: set[Key] = set()
        self._batches = 0
        self._done: dict[Key, Trained | Evaluated] = {}
        self._waiting: set[int] = set()
        self._closed: set[int] = set()
        self._failure: BaseException | None = None
        self._beginner = ThreadPoolExecutor(1, "gpu")
        self._collector = ThreadPoolExecutor(1, "gpu-results")

    @property
    def trainer(self) -> Trainer:
        if self._trainer is None:
            raise FedtwinError("The executor is closed.")
        return self._trainer

    def executor(self) -> "RunExecutor":
        """An executor for the next run."""
        if self._given == self._runs:
            raise ValueError(f"this hub was made for {self._runs} runs")
        self._given += 1
        return RunExecutor(self, self._given - 1)

    def submit(self, key: Key, task: Task) -> None:
        with self._changed:
            self._tasks[key] = task

    def submit_evaluation(self, key: Key, weights: Weights) -> None:
        with self._changed:
            self._models[key] = weights

    def wait_for(self, key: Key) -> Trained | Evaluated:
        with self._changed:
            if not any(key in held for held in (self._tasks, self._models, self._under_way, self._done)):
                raise KeyError(key)
            while key not in self._done:
                self._raise_failure()
                if key[0] in self._closed:
                    raise FedtwinError("The executor is closed.")
                if key not in self._under_way:
                    self._waiting.add(key[0])
                    self._begin_if_due()
                self._changed.wait()
            return self._done.pop(key)

    def close(self, run: int) -> None:
        """The run has ended: its tasks are dropped, and nobody waits for it any more. The last one frees the GPU."""
        with self._changed:
            self._unfinished -= 1
            self._closed.add(run)
            self._waiting.discard(run)
            for held in (self._tasks, self._models, self._done):
                for key in [key for key in held if key[0] == run]:
                    del cast(dict[Key, object], held)[key]
            if self._unfinished == 0:
                self._trainer = None
                self._beginner.shutdown(wait=False)
                self._collector.shutdown(wait=False)
                if self._batches == 0:
                    _free_the_cache()
            self._changed.notify_all()

    def stop(self) -> None:
        """Runs that still wait, or will, end with an error; where all have ended it changes nothing."""
        with self._changed:
            self._failure = self._failure or FedtwinError("it was stopped")
            self._changed.notify_all()

    def join(self) -> None:
        """Afterwards nothing of this hub is on its way to the GPU: another one may be made."""
        self._beginner.shutdown(wait=True)
        self._collector.shutdown(wait=True)
        _free_the_cache()

    def _begin_if_due(self) -> None:
        """Half of the unfinished runs wait, or all that are not under way: what these ask for is begun. With the lock."""
        if self._batches == MOST_BATCHES or not self._waiting:
            return
        under_way = {run for run, _ in self._under_way}
        if 2 * len(self._waiting) < self._unfinished and len(self._waiting) + len(under_way) < self._unfinished:
            return
        tasks = {key: self._tasks.pop(key) for key in list(self._tasks) if key[0] in self._waiting}
        models = {key: self._models.pop(key) for key in list(self._models) if key[0] in self._waiting}
        self._under_way |= {*tasks, *models}
        self._batches += 1
        self._waiting.clear()
        self._beginner.submit(self._begin, self.trainer, tasks, models)

    def _begin(self, trainer: Trainer, tasks: dict[Key, Task], models: dict[Key, Weights]) -> None:
        """It is always the same thread that does this: the GPU libraries have handles for every thread, and to make one while a
        step is being recorded is an error."""
        keys = [*tasks, *models]
        if self._failure is not None:
            self._over(keys, self._failure)
            return
        try:
            trained = trainer.begin_training(list(tasks.values())) if tasks else list
            evaluated = trainer.begin_evaluation(list(models.values())) if models else list
            self._collector.submit(self._collect, keys, lambda: [*trained(), *evaluated()])
        except BaseException as error:
            self._over(keys, error)

    def _collect(self, keys: list[Key], outcomes: Callable[[], list[Trained | Evaluated]]) -> None:
        try:
            self._over(keys, outcomes())
        except BaseException as error:
            self._over(keys, error)

    def _over(self, keys: list[Key], found: list[Trained | Evaluated] | BaseException) -> None:
        """A batch has come to its end, whatever that is."""
        with self._changed:
            self._under_way.difference_update(keys)
            self._batches -= 1
            if isinstance(found, BaseException):
                self._failure = self._failure or without_frames(found)
            else:
                outcomes = zip(keys, found, strict=True)
                self._done.update((key, outcome) for key, outcome in outcomes if key[0] not in self._closed)
            self._begin_if_due()
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            reason = f"{type(self._failure).__name__}: {self._failure}".splitlines()[0]
            raise FedtwinError(f"Training on the GPU failed: {reason}.") from self._failure


def without_frames(error: BaseException) -> BaseException:
    """The same error, which no longer holds what lay on the GPU when it was raised."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _free_the_cache() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class RunExecutor:
    """One run's executor: an ``Executor`` whose tasks are done together with those of the other runs of the hub."""

    def __init__(self, hub: Hub, run: int) -> None:
        self._hub, self._run, self._closed = hub, run, False

    def adopt(self, weights: Weights) -> Weights:
        return self._hub.trainer.adopt(weights)

    def host(self, weights: Weights) -> Weights:
        return self._hub.trainer.host(weights)

    def submit(self, key: int, start: Weights, lesson: Lesson) -> None:
        self._hub.submit((self._run, key), Task(start, lesson))

    def result(self, key: int) -> Trained:
        return cast(Trained, self._hub.wait_for((self._run, key)))

    def submit_evaluation(self, key: int, weights: Weights) -> None:
        self._hub.submit_evaluation((self._run, key), weights)

    def evaluation(self, key: int) -> Evaluated:
        return cast(Evaluated, self._hub.wait_for((self._run, key)))

    def require_no_memory(self) -> None:
        """What is trained on a GPU is not trained again."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._hub.close(self._run)


class CudaHub(Hub):
    """One GPU for several runs that share network, data and learning settings; their seeds may differ."""

    def __init__(self, workload: Workload, runs: int = 1, precision: Precision = "mixed") -> None:
        if not torch.cuda.is_available():
            raise FedtwinError("learning.executor = 'cuda' needs a CUDA GPU and a CUDA build of PyTorch: none is found.")
        super().__init__(make_trainer(workload, precision), runs)


class CudaExecutor(RunExecutor):
    """One GPU for one run."""

    def __init__(self, workload: Workload, precision: Precision = "mixed") -> None:
        super().__init__(CudaHub(workload, 1, precision), 0)
