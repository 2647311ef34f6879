"""One training after the other, in this process: the readable reference."""

import torch

from fedtwin.learning.executors.base import Workload
from fedtwin.learning.layout import Weights
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Evaluated, Trained


class SerialExecutor:
    """Trains when the result is due. One thread, so that the bits are those of every other CPU executor."""

    def __init__(self, workload: Workload) -> None:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self._trainer = workload.watched_trainer()
        self._waiting: dict[int, tuple[Weights, Lesson]] = {}
        self._evaluations: dict[int, Evaluated] = {}

    def adopt(self, weights: Weights) -> Weights:
        return weights

    def host(self, weights: Weights) -> Weights:
        return weights

    def submit(self, key: int, start: Weights, lesson: Lesson) -> None:
        self._waiting[key] = (start, lesson)

    def result(self, key: int) -> Trained:
        return self._trainer.train(*self._waiting.pop(key))

    def submit_evaluation(self, key: int, weights: Weights) -> None:
        self._evaluations[key] = self._trainer.evaluate(weights)

    def evaluation(self, key: int) -> Evaluated:
        return self._evaluations.pop(key)

    def require_no_memory(self) -> None:
        self._trainer.require_no_memory()

    def close(self) -> None:
        torch.set_num_threads(self._threads)
