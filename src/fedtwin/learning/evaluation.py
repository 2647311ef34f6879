"""What is measured of a model while it is trained."""

from typing import NamedTuple


class Evaluation(NamedTuple):
    """One row of ``evaluations.parquet``: the model as it stood at a virtual time."""

    round: int
    clock_s: float
    energy_j: float
    test_loss: float
    test_accuracy: float
