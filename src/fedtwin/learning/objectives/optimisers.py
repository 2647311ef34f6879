"""Optimisers: ``optimiser(parameters, learning_rate)`` makes a ``torch.optim.Optimizer``, as one of the user's own does.

It is made anew for every local training: what it has gathered does not travel. Those of fedtwin are given the settings too.
``sgd`` without weight decay is done on the flat vectors instead.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from fedtwin.config import LearningConfig


def sgd(parameters: Iterable[Tensor], learning_rate: float, settings: LearningConfig) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=learning_rate, weight_decay=settings.weight_decay)


def momentum(parameters: Iterable[Tensor], learning_rate: float, settings: LearningConfig) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay)


def adam(parameters: Iterable[Tensor], learning_rate: float, settings: LearningConfig) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=learning_rate, weight_decay=settings.weight_decay)
