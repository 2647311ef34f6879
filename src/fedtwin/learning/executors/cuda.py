"""Local training on one GPU, late and together: nothing is trained before its result is due, then everything pending is.

A GPU is busy only when many clients train at once. Several runs (seeds and schemes of a comparison) therefore share one hub,
each from a thread of its own: the batch is trained when every unfinished run waits for a result. Models stay on the GPU.
"""

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


class Hub:
    """Gathers the tasks of several runs, and has them done by whoever is the last to wait.

    All ``runs`` executors must be in use at the same time: a run that has not begun is one that the others wait for.
    """

    def __init__(self, trainer: Trainer, runs: int = 1) -> None:
        self._trainer: Trainer | None = trainer
        self._changed = Condition()
        self._runs = self._unfinished = runs
        self._given = 0
        self._tasks: dict[Key, Task] = {}
        self._models: dict[Key, Weights] = {}
        self._done: dict[Key, Trained | Evaluated] = {}
        self._waiting: set[int] = set()
        self._failure: BaseException | None = None
        self._worker = ThreadPoolExecutor(1, "gpu")

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
            if key not in self._tasks and key not in self._models and key not in self._done:
                raise KeyError(key)
            while key not in self._done:
                self._raise_failure()
                self._waiting.add(key[0])
                if len(self._waiting) == self._unfinished:
                    self._work()
                else:
                    self._changed.wait()
            return self._done.pop(key)

    def close(self, run: int) -> None:
        """The run has ended: its tasks are dropped, and nobody waits for it any more. The last one frees the GPU."""
        with self._changed:
            self._unfinished -= 1
            for held in (self._tasks, self._models, self._done):
                for key in [key for key in held if key[0] == run]:
                    del cast(dict[Key, object], held)[key]
            if self._unfinished == 0:
                self._trainer = None
                self._worker.shutdown(wait=False)
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
            self._changed.notify_all()

    def stop(self) -> None:
        """Runs that still wait, or will, end with an error; where all have ended it changes nothing."""
        with self._changed:
            self._failure = self._failure or FedtwinError("it was stopped")
            self._changed.notify_all()

    def _work(self) -> None:
        """Everything pending, of all runs. Every other run waits, so the lock may be held.

        It is always the same thread that does it: the GPU libraries have handles for every thread, and to make one while a step
        is being recorded is an error.
        """
        tasks, models = self._tasks, self._models
        self._tasks, self._models = {}, {}
        try:
            self._done.update(self._worker.submit(self._do, tasks, models).result())
        except BaseException as error:
            self._failure = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._waiting.clear()
            self._changed.notify_all()

    def _do(self, tasks: dict[Key, Task], models: dict[Key, Weights]) -> dict[Key, Trained | Evaluated]:
        trained = self.trainer.train(list(tasks.values())) if tasks else []
        evaluated = self.trainer.evaluate(list(models.values())) if models else []
        return dict(zip([*tasks, *models], [*trained, *evaluated], strict=True))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            reason = f"{type(self._failure).__name__}: {self._failure}".splitlines()[0]
            raise FedtwinError(f"Training on the GPU failed: {reason}.") from self._failure


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
