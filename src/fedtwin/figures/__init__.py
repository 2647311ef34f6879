"""Pictures: a table in, axes out. Nothing here runs a simulation."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedtwin.experiments.spec import Experiment
from fedtwin.experiments.tables import TableRow
from fedtwin.figures.cost_sweep import draw_cost_sweep
from fedtwin.figures.regret import draw_regret
from fedtwin.figures.total_queue import draw_total_queue

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAW: dict[str, Callable[["Axes", Experiment, list[TableRow]], None]] = {
    "3": draw_cost_sweep,
    "4": draw_cost_sweep,
    "5": draw_total_queue,
    "regret": draw_regret,
}
