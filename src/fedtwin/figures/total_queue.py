"""Figure 5: total queue over the rounds, and by how much each curve still grows at its end."""

from typing import TYPE_CHECKING

from fedtwin.experiments.spec import Experiment
from fedtwin.experiments.tables import TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_total_queue(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    axes = picture.add_subplot()
    values = experiment.sweep.values if experiment.sweep else []
    for value in reversed(values):
        rows = [row for row in table if row["v"] == value]
        growth, flat = rows[-1]["growth_over_last_fifth"], "flat" if rows[-1]["flattened"] else "still growing"
        x = [row["round"] for row in rows]
        label = f"V = {value:.0e}: {growth:+.1%} over the last fifth, {flat}"
        (line,) = axes.plot(x, [row["total_queue"] for row in rows], label=label)
        axes.fill_between(x, [row["low"] for row in rows], [row["high"] for row in rows], alpha=0.2, color=line.get_color())
    axes.legend(loc="upper left")
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.3)
    axes.set(xlabel=experiment.x_label, ylabel=experiment.y_label)
