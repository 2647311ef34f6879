"""What is measured of a model while it is trained."""

import math
from typing import NamedTuple

MEASURED = ("test_loss", "test_accuracy", "test_metric", "plain_test_loss", "plain_test_metric")
"""The figures of an evaluation that a summary has too."""


class Evaluation(NamedTuple):
    """One row of ``evaluations.parquet``: the model as it stood at a virtual time.

    ``test_metric`` is that of the task (``learning.metric``); where it is the accuracy, that stands in both columns.
    They are of the model that is served. Where that is an average (``learning.average``), ``plain_test_loss`` and
    ``plain_test_metric`` are of the model w that devices train on. L(w) and ‖∇L(w)‖² over all samples that the devices own are
    had where ``learning.record_gradient`` asks for them. ``cost_spent`` is Ω summed over the same updates as ``energy_j``;
    live runs and old folders have none.
    """

    round: int
    clock_s: float
    energy_j: float
    test_loss: float
    test_accuracy: float | None = None
    global_loss: float | None = None
    gradient_norm2: float | None = None
    test_metric: float | None = None
    plain_test_loss: float | None = None
    plain_test_metric: float | None = None
    cost_spent: float | None = None


def number_or_none(metric: float | None) -> float | None:
    """What a metric of one's own gives that is no number is not had: a table has nothing there."""
    return None if metric is None or math.isnan(metric) else metric
