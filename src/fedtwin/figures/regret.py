"""Regret: measured time-average regret beside the bound as printed and as corrected."""

from typing import TYPE_CHECKING

from fedtwin.experiments.spec import Experiment
from fedtwin.experiments.tables import TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_regret(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    axes = picture.add_subplot()
    rounds = [row["round"] for row in table]
    best, never_busy = table[0]["best_stationary_cost"], table[0]["best_stationary_cost_if_never_busy"]
    for column, label, style in (
        ("corrected_bound", "bound, corrected", "C3-"),
        ("paper_bound", "bound, as printed", "C1--"),
        ("regret_if_never_busy", f"measured, against s* = {never_busy:.3f} (devices never busy)", "C2:"),
        ("regret", f"measured, against s* = {best:.3f}", "C0-"),
    ):
        axes.plot(rounds, [row[column] for row in table], style, label=label)
    axes.fill_between(rounds, [row["low"] for row in table], [row["high"] for row in table], alpha=0.2, color="C0")
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=0.1, linscale=2.0)
    axes.set_yticks([0, 0.02, 0.04, 0.06, 0.08, 0.1, 1, 10], ["0", "0.02", "0.04", "0.06", "0.08", "0.1", "1", "10"])
    axes.set_ylim(-0.01, 30)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    axes.set(xlabel=experiment.x_label, ylabel=experiment.y_label)
