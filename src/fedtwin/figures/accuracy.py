"""Figures 6 to 9: test accuracy against virtual time, and against energy spent."""

from typing import TYPE_CHECKING

from fedtwin.experiments.spec import Experiment
from fedtwin.experiments.tables import TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (("time", "virtual time (s)"), ("energy", "energy spent by the fleet (J)"))


def draw_accuracy(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    """Student's interval knows nothing of what an accuracy can be: it is drawn between 0 and 1, and kept whole in the CSV."""
    picture.set_size_inches(10.0, 4.6)
    panels = picture.subplots(1, 2, sharey=True)
    curves = list(dict.fromkeys(row["curve"] for row in table))
    for axes, (axis, label) in zip(panels, PANELS, strict=True):
        for curve in curves:
            rows = [row for row in table if row["curve"] == curve and row["axis"] == axis]
            x = [row["x"] for row in rows]
            (line,) = axes.plot(x, [row["test_accuracy"] for row in rows], label=curve)
            low, high = ([min(max(row[bound], 0.0), 1.0) for row in rows] for bound in ("low", "high"))
            axes.fill_between(x, low, high, alpha=0.08, color=line.get_color())
        axes.set(xlabel=label)
    panels[0].set(ylabel=experiment.y_label)
    panels[1].legend(loc="lower right")
