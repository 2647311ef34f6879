"""The kinds of figures, one file each: the rows behind the picture, and the drawing of them."""

from fedtwin.errors import FedtwinError
from fedtwin.experiments.specs.figure import Experiment
from fedtwin.figures.kinds import accuracy, cost, decomposition, queues, regret, theorem, total_queue
from fedtwin.figures.kinds.base import Curve, Kind, TableRow

__all__ = ["KINDS", "Curve", "Kind", "TableRow", "kind_of"]

KINDS: dict[str, Kind] = {
    "cost": cost.KIND,
    "total-queue": total_queue.KIND,
    "regret": regret.KIND,
    "decomposition": decomposition.KIND,
    "queues": queues.KIND,
    "theorem-1": theorem.KIND,
    "accuracy": accuracy.KIND,
}


def kind_of(experiment: Experiment) -> Kind:
    """The kind that the experiment names."""
    if experiment.kind not in KINDS:
        raise FedtwinError(f"The experiment's kind = {experiment.kind!r} is unknown: choose one of {', '.join(KINDS)}.")
    return KINDS[experiment.kind]
