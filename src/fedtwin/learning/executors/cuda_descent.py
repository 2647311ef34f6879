"""One step of all clients at once, by the formulas of torch.optim: each client has a rate of its own, which may change.

What changes from task to task and from step to step lies on the GPU, three numbers per client, so that no recorded step is
recorded anew: the step size, the pull of the model the client started from, and Adam's √(1 − β2^t).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtwin.config import LearningConfig
from fedtwin.learning.objectives import clip_factor

NUMBERS = 3
BETA1, BETA2, LEAST = 0.9, 0.999, 1e-8
"""Adam's, as torch.optim has them (Kingma and Ba, 2015)."""


@dataclass(frozen=True)
class StepRule:
    """How parameters go downhill. ``plain`` is SGD with the proximal term as a pull towards the start; the others have it, and
    weight decay, in the gradient. ``rate`` is the rate of all tasks where it never changes.
    """

    form: Literal["plain", "decayed", "momentum", "adam"]
    proximal: float
    decay: float
    clip: float
    beta1: float
    beta2: float
    least: float
    rate: float | None

    @property
    def kept(self) -> int:
        """How many vectors a client keeps from step to step."""
        return {"plain": 0, "decayed": 0, "momentum": 1, "adam": 2}[self.form]


def rule_of(learning: LearningConfig) -> StepRule:
    form = {"sgd": "decayed" if learning.weight_decay else "plain", "momentum": "momentum", "adam": "adam"}[learning.optimiser]
    constant = learning.rate_schedule == "constant" and not learning.rate_warmup_rounds
    beta1 = learning.momentum if form == "momentum" else BETA1
    rate = learning.learning_rate if constant else None
    return StepRule(form, learning.proximal, learning.weight_decay, learning.clip_norm, beta1, BETA2, LEAST, rate)  # type: ignore[arg-type]


def numbers_of(rule: StepRule, rates: list[float], steps: int) -> NDArray[np.float32]:
    """Step size, pull and root of every step and client, (steps, clients, 3), in double precision before they are rounded."""
    found = np.ones((steps, len(rates), NUMBERS))
    found[:, :, 0] = rates
    found[:, :, 1] = np.array(rates) * rule.proximal if rule.form == "plain" else rule.proximal
    if rule.form == "adam":
        step = np.arange(1, steps + 1)[:, None]
        found[:, :, 0] /= 1.0 - rule.beta1**step
        found[:, :, 2] = np.sqrt(1.0 - rule.beta2**step)
    return found.astype(np.float32)


def factors_of(rule: StepRule, gradient: Tensor) -> Tensor | None:
    """What clips every client's gradient, (clients, 1), if anything does."""
    return clip_factor(gradient, rule.clip) if rule.clip else None


def descend(rule: StepRule, parameters: Tensor, anchor: Tensor, gradient: Tensor, state: list[Tensor], numbers: Tensor) -> None:
    """One step, in place, by plain PyTorch operations: what the kernel of the same name is held to."""
    step, pull, root = (numbers[:, k, None] for k in range(NUMBERS))
    if (factors := factors_of(rule, gradient)) is not None:
        gradient = gradient * factors
    if rule.form == "plain":
        parameters.lerp_(anchor, pull if rule.rate is None else rule.rate * rule.proximal)
        _subtract(parameters, gradient, step, rule)
        return
    gradient = (parameters - anchor).mul_(pull).add_(gradient).add_(parameters, alpha=rule.decay)
    if rule.form == "adam":
        mean, square = state
        mean.lerp_(gradient, 1.0 - rule.beta1)
        square.mul_(rule.beta2).addcmul_(gradient, gradient, value=1.0 - rule.beta2)
        parameters.sub_(torch.div(mean, square.sqrt().div_(root).add_(rule.least)).mul_(step))
        return
    if rule.form == "momentum":
        gradient = state[0].mul_(rule.beta1).add_(gradient)
    _subtract(parameters, gradient, step, rule)


def _subtract(parameters: Tensor, gradient: Tensor, step: Tensor, rule: StepRule) -> None:
    if rule.rate is None:
        parameters.addcmul_(gradient, step, value=-1.0)
    else:
        parameters.add_(gradient, alpha=-rule.rate)
