"""Figures 3 and 4: mean cost of every scheme over one setting, with 95 % intervals."""

from typing import TYPE_CHECKING

from fedtwin.experiments.spec import Experiment
from fedtwin.experiments.tables import TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = {"CU-UCB": "o", "As-Q-only": "s", "As-fairness": "^", "Sy-fairness": "D"}


def draw_cost_sweep(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    axes = picture.add_subplot()
    key = experiment.sweep.key.partition(".")[2] if experiment.sweep else "value"
    for scheme in experiment.schemes:
        rows = [row for row in table if row["scheme"] == scheme]
        x, y = [row[key] for row in rows], [row["mean_cost"] for row in rows]
        (line,) = axes.plot(x, y, marker=MARKERS.get(scheme, "o"), label=scheme)
        axes.fill_between(x, [row["low"] for row in rows], [row["high"] for row in rows], alpha=0.2, color=line.get_color())
    axes.set_xticks([row[key] for row in table if row["scheme"] == experiment.schemes[0]])
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(experiment.schemes), frameon=False)
    axes.set(xlabel=experiment.x_label, ylabel=experiment.y_label)
