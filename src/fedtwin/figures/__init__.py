"""Pictures: a table in, axes out. Nothing here runs a simulation."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedtwin.experiments.spec import Experiment, Kind
from fedtwin.experiments.tables import TableRow
from fedtwin.figures.accuracy import draw_accuracy
from fedtwin.figures.cost_sweep import draw_cost_sweep
from fedtwin.figures.regret import draw_regret
from fedtwin.figures.total_queue import draw_total_queue

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[["Figure", Experiment, list[TableRow]], None]
DRAW: dict[Kind, Draw] = {
    "cost": draw_cost_sweep,
    "total-queue": draw_total_queue,
    "regret": draw_regret,
    "accuracy": draw_accuracy,
}
