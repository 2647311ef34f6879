"""The steps of one local training of one network, whose parameters and gradients are flat vectors.

The gradient of the loss is clipped first; the proximal term and weight decay are added to it, as torch.optim does with decay.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from fedtwin.learning.objectives.objective import Objective

LEAST_NORM = 1e-6


def clip_factor(gradient: Tensor, most: float) -> Tensor:
    """What shortens a gradient, or the one in every row, to the norm ``most``, as ``torch.nn.utils.clip_grad_norm_`` has it."""
    norm: Tensor = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    return torch.clamp(most / (norm + LEAST_NORM), max=1.0)


class Descent:
    """From where the parameters are when it is made, which the proximal term pulls back to."""

    def __init__(self, objective: Objective, tensors: Iterable[Tensor], flat: Tensor, gradient: Tensor, rate: float) -> None:
        self._flat, self._gradient, self._anchor = flat, gradient, flat.clone()
        self._rate, self._proximal, self._clip = rate, objective.learning.proximal, objective.learning.clip_norm
        self._optimiser = None if objective.steps_flat else objective.optimiser(tensors, rate)

    def step(self) -> None:
        """One, by the gradient that is there."""
        if self._clip:
            self._gradient.mul_(clip_factor(self._gradient, self._clip))
        if self._optimiser is None:
            self._flat.lerp_(self._anchor, self._rate * self._proximal).add_(self._gradient, alpha=-self._rate)
        else:
            self._gradient.add_(self._flat - self._anchor, alpha=self._proximal)
            self._optimiser.step()
