"""How the evaluations of a run went on, for the rules that end it."""

import math
from dataclasses import dataclass

from fedtwin.config import LearningConfig
from fedtwin.learning.tasks import task_of


@dataclass
class Judged:
    """The best metric so far, and how many evaluations there were since that were no better."""

    best: float | None = None
    since: int = 0

    def evaluated(self, learning: LearningConfig | None, metric: float | None) -> None:
        better = metric is not None and not math.isnan(metric) and (self.best is None or _better(learning, metric, self.best))
        if better:
            self.best, self.since = metric, 0
        else:
            self.since += 1

    def reaches(self, learning: LearningConfig | None, target: float) -> bool:
        """Whether an evaluation was as good as that."""
        return self.best is not None and not _better(learning, target, self.best)


def _better(learning: LearningConfig | None, metric: float, than: float) -> bool:
    """By the direction of the run's metric."""
    lower = learning is not None and task_of(learning).direction == "lower"
    return metric < than if lower else metric > than
