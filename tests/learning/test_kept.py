"""The best model by the metric's direction."""

import math

import numpy as np
import pytest

from fedtwin.learning.evaluation import Evaluation
from fedtwin.learning.kept import KeptModel
from fedtwin.learning.layout import Weights
from fedtwin.learning.tasks import Direction


def model(value: float) -> Weights:
    return Weights(np.full(2, value, np.float32), np.array([0]))


@pytest.mark.parametrize(("direction", "best"), [("higher", 2.0), ("lower", 1.0)])
def test_the_first_of_the_best_is_kept(direction: Direction, best: float) -> None:
    kept = KeptModel()
    for number, metric in enumerate([math.nan, 0.2, 0.9, 0.9, 0.2]):
        kept.measured(Evaluation(number, 0.0, 0.0, 1.0, test_metric=metric), model(float(number)), direction)
    assert kept.best is not None and kept.best.floats.tolist() == [best, best]
