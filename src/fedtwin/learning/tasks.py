"""What is learned: the task of a run, with its loss and its metric by name. NumPy only, so that an edge server knows it too.

classification: whole numbers from 0, one per sample. regression: numbers, one or several per sample. multilabel: 0 or 1 for
every label of a sample.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtwin.config import LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.registry import LOWER_IS_BETTER, TASKS

Direction = Literal["higher", "lower"]
ALWAYS_ALLOWED_CLASSES = 1000


@dataclass(frozen=True)
class LearningTask:
    """The names that records and exported models carry; ``metric`` is short where it is code of the user's."""

    name: str
    loss: str
    metric: str
    direction: Direction

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def is_accuracy(self) -> bool:
        return self.metric == "accuracy"


def task_of(learning: LearningConfig) -> LearningTask:
    """The task of a configuration, ``auto`` replaced by what it means."""
    own = TASKS[learning.task]
    loss = own.losses[0] if learning.loss == "auto" else learning.loss
    metric = own.metrics[0] if learning.metric == "auto" else learning.metric
    direction: Direction = "lower" if metric in LOWER_IS_BETTER else "higher"
    if learning.metric_direction != "auto":
        direction = learning.metric_direction
    return LearningTask(learning.task, loss, metric.rpartition(":")[2], direction)


def checked_targets(setting: str, task: str, part: str, y: NDArray[Any], samples: int) -> NDArray[Any]:
    """Targets as the task has them: whole numbers (count,), or float32 (count, targets); anything else is one sentence."""
    if y.ndim not in ((1,) if task == "classification" else (1, 2)) or len(y) != samples or (y.ndim == 2 and not y.shape[1]):
        one = "one label each" if task == "classification" else f"targets of learning.task = {task!r}, (count[, targets]),"
        raise FedtwinError(f"{setting}: y_{part} {y.shape} is not {one} for the {samples} samples of x_{part}.")
    if task == "classification":
        if not np.issubdtype(y.dtype, np.integer) or (len(y) and y.min() < 0):
            raise FedtwinError(f"{setting}: y_{part} must hold whole numbers from 0.")
        return y
    if not (np.issubdtype(y.dtype, np.number) or y.dtype == np.bool_) or np.iscomplexobj(y):
        raise FedtwinError(f"{setting}: y_{part} is {y.dtype}: learning.task = {task!r} needs numbers.")
    with np.errstate(over="ignore"):
        found = y.astype(np.float32).reshape(len(y), -1)
    if task == "multilabel" and not np.isin(found, (0.0, 1.0)).all():
        raise FedtwinError(f"{setting}: y_{part} must hold 0 or 1 for every label: learning.task = 'multilabel'.")
    if not np.isfinite(found).all():
        raise FedtwinError(f"{setting}: y_{part} holds a target that is not a finite number in float32.")
    return found


def outputs_of_targets(learning: LearningConfig, setting: str, targets: list[NDArray[Any]]) -> int:
    """How many outputs a network needs: as ``learning.outputs`` says, or as the targets have it."""
    if learning.task != "classification":
        found = int(max(y.shape[1] for y in targets))
        if learning.outputs not in (0, found):
            raise FedtwinError(f"{setting} has {found} targets per sample, and learning.outputs = {learning.outputs}.")
        return found
    found = max((int(y.max()) + 1 for y in targets if len(y)), default=0)
    if learning.outputs:
        if found > learning.outputs:
            raise FedtwinError(
                f"{setting} has the label {found - 1}, and learning.outputs = {learning.outputs}: labels count from 0."
            )
        return learning.outputs
    samples = sum(len(y) for y in targets)
    most = max(samples, ALWAYS_ALLOWED_CLASSES)
    if found > most:  # a stray label would be a network with millions of outputs
        part = "train" if int(targets[0].max()) == found - 1 else "test"
        raise FedtwinError(
            f"{setting}: y_{part} holds the label {found - 1}, and labels are the numbers of the classes, from 0: "
            f"with {samples} samples they must be below {most}."
        )
    return found
