"""Losses: ``loss(outputs, targets)`` gives one number per sample, which is what a loss of the user's own gives too.

The whole of a batch is its mean, so the gradient of a step is that of the mean.
"""

from torch import Tensor
from torch.nn import functional


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(outputs, targets, reduction="none").mean(1)


def mae(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.l1_loss(outputs, targets, reduction="none").mean(1)


def huber(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared within one standard deviation of the targets, absolute beyond."""
    return functional.huber_loss(outputs, targets, reduction="none").mean(1)


def bce(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of every label, of outputs before the sigmoid."""
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(1)
