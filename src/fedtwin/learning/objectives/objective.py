"""Loss, metric and optimiser of a run, loaded: what local training and evaluation call."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedtwin.config import LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.tasks import task_of
from fedtwin.registry import Kind, is_built_in, target_of
from fedtwin.usercode import load_object, sentence_of_error


@dataclass(frozen=True)
class Objective:
    """``is_plain``: classes by cross-entropy and accuracy, and an optimiser of fedtwin: what is trained stacked on a GPU."""

    learning: LearningConfig
    is_plain: bool
    _loss: Callable[[Tensor, Tensor], Any]
    _metric: Callable[[Tensor, Tensor], Any]
    _optimiser: Callable[[Iterable[Tensor], float], Any]
    _short: bool

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every sample."""
        losses = self._loss(outputs, targets)
        if not isinstance(losses, Tensor) or losses.shape != (len(targets),):
            found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise FedtwinError(
                f"learning.loss = {self.learning.loss!r} gives {found} for {len(targets)} samples: one number per sample "
                "is needed."
            )
        return losses

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What a step goes down by."""
        return functional.cross_entropy(outputs, targets) if self._short else self.each(outputs, targets).mean()

    def sum(self, outputs: Tensor, targets: Tensor) -> float:
        if self._short:
            return float(functional.cross_entropy(outputs, targets, reduction="sum"))
        return float(self.each(outputs, targets).sum())

    def metric(self, outputs: Tensor, targets: Tensor) -> float:
        """Over all samples of a test set; of code of the user's own, one number or one sentence."""
        found = self._metric(outputs, targets)
        if isinstance(found, np.generic) or (isinstance(found, Tensor) and found.numel() == 1):
            found = found.item()
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise FedtwinError(f"learning.metric = {self.learning.metric!r} gives {found!r:.80}: one number is needed.")
        return float(found) if math.isfinite(found) else math.nan

    @property
    def steps_flat(self) -> bool:
        """SGD as two vector operations; weight decay would reach what is frozen."""
        return self.learning.optimiser == "sgd" and not self.learning.weight_decay

    def optimiser(self, parameters: Iterable[Tensor], rate: float) -> torch.optim.Optimizer:
        """A fresh one."""
        found = self._optimiser([one for one in parameters if one.requires_grad], rate)
        if not isinstance(found, torch.optim.Optimizer):
            raise FedtwinError(
                f"learning.optimiser = {self.learning.optimiser!r} made a {type(found).__name__}, not a torch.optim.Optimizer."
            )
        return found


def objective_of(learning: LearningConfig, folder: str | None = None) -> Objective:
    """Loss, metric and optimiser that a configuration names; the user's own are looked for in ``folder``."""
    task = task_of(learning)
    metric = task.metric if learning.metric == "auto" else learning.metric
    short = task.loss == "cross-entropy"
    return Objective(
        learning,
        short and metric == "accuracy" and is_built_in("optimisers", learning.optimiser),
        _loaded("losses", "learning.loss", task.loss, folder),
        _loaded("metrics", "learning.metric", metric, folder),
        _optimiser_of(learning, folder),
        short,
    )


def _optimiser_of(learning: LearningConfig, folder: str | None) -> Callable[[Iterable[Tensor], float], Any]:
    found = _loaded("optimisers", "learning.optimiser", learning.optimiser, folder)
    return partial(found, settings=learning) if is_built_in("optimisers", learning.optimiser) else found


def _loaded(kind: Kind, setting: str, name: str, folder: str | None) -> Callable[..., Any]:
    target = target_of(kind, name)
    assert target is not None
    found = load_object(setting, target, folder)
    if not callable(found):
        raise FedtwinError(f"{setting} = {name!r} is a {type(found).__name__}: a function is needed.")
    return _told(setting, name, found) if ":" in name else found


def _told(setting: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """What code of the user's own raises names the setting, the file and the line."""

    def call(*given: Any) -> Any:
        try:
            return function(*given)
        except Exception as error:
            raise FedtwinError(f"{setting} = {name!r} fails: {sentence_of_error(error)}.") from None

    return call
