"""Metrics: ``metric(outputs, targets)`` over a whole test set gives one number, as one of the user's own does.

Outputs of a regression, and its targets, are in the units of the data; those of the others come before softmax and sigmoid.
"""

import torch
from torch import Tensor


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    return int((outputs.argmax(1) == targets).sum()) / len(targets)


def f1(outputs: Tensor, targets: Tensor) -> float:
    """The mean over labels, or classes, of 2 TP / (2 TP + FP + FN); one that is neither there nor found counts as 1."""
    if targets.dim() == 1:
        classes = torch.arange(outputs.shape[1], device=outputs.device)
        found, there = outputs.argmax(1)[:, None] == classes, targets[:, None] == classes
    else:
        found, there = outputs > 0.0, targets > 0.5
    right = (found & there).sum(0).double()
    all_ = found.sum(0).double() + there.sum(0).double()
    return float(torch.where(all_ > 0, 2.0 * right / all_.clamp(min=1.0), 1.0).mean())


def exact_match(outputs: Tensor, targets: Tensor) -> float:
    """The share of samples of which every label is right."""
    return int(((outputs > 0.0) == (targets > 0.5)).all(1).sum()) / len(targets)


def rmse(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.double() - targets.double()).square().mean().sqrt())


def mae(outputs: Tensor, targets: Tensor) -> float:
    return float((outputs.double() - targets.double()).abs().mean())


def r2(outputs: Tensor, targets: Tensor) -> float:
    """1 − the share of the targets' variance that is not explained, the mean over targets; of a constant one it is 0."""
    there = targets.double()
    left = (outputs.double() - there).square().sum(0)
    whole = (there - there.mean(0)).square().sum(0)
    return float(torch.where(whole > 0, 1.0 - left / whole.clamp(min=1e-300), 0.0).mean())
