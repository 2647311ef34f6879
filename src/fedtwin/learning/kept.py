"""The model of a run that is kept beside the last one: the best by its metric, of those that were served.

Its vectors are NumPy's or PyTorch's, as the executor has them.
"""

import math
from dataclasses import dataclass

from fedtwin.learning.evaluation import Evaluation
from fedtwin.learning.layout import Weights
from fedtwin.learning.tasks import Direction


def is_better(metric: float | None, than: float | None, direction: Direction) -> bool:
    """The first of equals stays; what is no number is never better."""
    if metric is None or math.isnan(metric):
        return False
    return than is None or (metric > than if direction == "higher" else metric < than)


@dataclass
class KeptModel:
    """Told of every evaluation."""

    best: Weights | None = None
    best_evaluation: Evaluation | None = None

    def measured(self, evaluation: Evaluation, model: Weights, direction: Direction) -> None:
        than = None if self.best_evaluation is None else self.best_evaluation.test_metric
        if is_better(evaluation.test_metric, than, direction):
            self.best, self.best_evaluation = model, evaluation
