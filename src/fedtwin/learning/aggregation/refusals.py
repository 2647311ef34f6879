"""What is never mixed in, and what is never averaged. NumPy only: an edge server aggregates without PyTorch.

Floating-point entries (parameters, running means and variances of BatchNorm) are the rule's to mix; integer counters are never
averaged, the larger is kept.
"""

import math
from typing import NamedTuple

import numpy as np

from fedtwin.learning.layout import Counters, Weights


class Refusal(NamedTuple):
    """One row of ``refusals.parquet``: an upload that was not mixed in."""

    round: int
    clock_s: float
    device: int
    reason: str


def refusal(model: Weights, upload: Weights, *, finite: bool | None = None, train_loss: float = 0.0) -> str | None:
    """Why an upload must not be mixed in: wrong shape, or something that is not finite.

    Whoever knows already whether all values are finite says so; the vectors may then be of any array type.
    """
    if upload.floats.shape != model.floats.shape or upload.counters.shape != model.counters.shape:
        values, counters = math.prod(upload.floats.shape), math.prod(upload.counters.shape)
        return f"wrong shape: {values} values and {counters} counters"
    if not (np.isfinite(upload.floats).all() if finite is None else finite):
        return "values that are not finite"
    return None if math.isfinite(train_loss) else "a training loss that is not finite"


def newest_counters(model: Counters, upload: Counters) -> Counters:
    """Counters are not averaged into nonsense: the larger is kept."""
    return np.maximum(model, upload)
