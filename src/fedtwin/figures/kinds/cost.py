"""Figures 3 and 4: mean cost of every scheme over one setting, with 95 % intervals."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedtwin.experiments.analysis.statistics import mean_interval, paired_difference
from fedtwin.experiments.specs.figure import Experiment
from fedtwin.figures.kinds.base import Curve, Kind, TableRow, swept_setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEGEND_COLUMNS = 4
MARKERS = {"CU-UCB": "o", "As-Q-only": "s", "As-fairness": "^", "Sy-fairness": "D"}


def cost_rows(experiment: Experiment, curves: Sequence[Curve]) -> list[TableRow]:
    """One row per curve; every scheme is also held against the first one, world by world."""
    first = {curve.value: curve for curve in curves if curve.scheme == experiment.schemes[0]}
    return [_row(experiment, curve, first[curve.value]) for curve in curves]


def _row(experiment: Experiment, curve: Curve, reference: Curve) -> TableRow:
    costs = [run.summary["mean_cost"] for run in curve.runs]
    cost = mean_interval(costs)
    above = paired_difference(curve.scheme, reference.scheme, costs, [run.summary["mean_cost"] for run in reference.runs])
    least = mean_interval([run.summary["least_mean_samples"] for run in curve.runs])
    return {
        "scheme": curve.scheme,
        swept_setting(experiment): curve.value,
        "mean_cost": cost.mean,
        "low": cost.low,
        "high": cost.high,
        f"above_{reference.scheme}": above.mean_difference,
        "above_low": above.low,
        "above_high": above.high,
        "mean_time_s": mean_interval([run.summary["mean_time_s"] for run in curve.runs]).mean,
        "mean_energy_j": mean_interval([run.summary["mean_energy_j"] for run in curve.runs]).mean,
        "least_mean_samples": least.mean,
        "seeds": len(curve.runs),
        "rounds": curve.runs[0].summary["rounds"],
    }


def draw_cost(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    axes = picture.add_subplot()
    key = swept_setting(experiment)
    for scheme in experiment.schemes:
        rows = [row for row in table if row["scheme"] == scheme]
        x, y = [row[key] for row in rows], [row["mean_cost"] for row in rows]
        (line,) = axes.plot(x, y, marker=MARKERS.get(scheme, "o"), label=scheme)
        axes.fill_between(x, [row["low"] for row in rows], [row["high"] for row in rows], alpha=0.2, color=line.get_color())
    axes.set_xticks([row[key] for row in table if row["scheme"] == experiment.schemes[0]])
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(len(experiment.schemes), LEGEND_COLUMNS), frameon=False
    )
    axes.set(xlabel=experiment.x_label, ylabel=experiment.y_label)


KIND = Kind(cost_rows, draw_cost)
