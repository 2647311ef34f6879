"""What is measured of a model while it is trained."""

from typing import NamedTuple


class Evaluation(NamedTuple):
    """One row of ``evaluations.parquet``: the model as it stood at a virtual time.

    L(w) and ‖∇L(w)‖² over all samples that the devices own are had where ``learning.record_gradient`` asks for them.
    """

    round: int
    clock_s: float
    energy_j: float
    test_loss: float
    test_accuracy: float
    global_loss: float | None = None
    gradient_norm2: float | None = None
