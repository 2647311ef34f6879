"""Figures 6 to 9: test accuracy against virtual time, energy spent and cost spent, mean and interval over seeds.

The accuracy is that of the model that is served; where that is an average, the plain model's stands beside it.
"""

from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.experiments.analysis.learning_curves import SEED_COLUMNS, summary_rows
from fedtwin.experiments.analysis.statistics import mean_interval, paired_difference
from fedtwin.experiments.batches.job import Outcome
from fedtwin.experiments.specs.figure import Experiment
from fedtwin.figures.kinds.base import Curve, Kind, TableRow, swept_setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 60
SIZE_INCHES = (14.0, 4.6)
AXES = {"time": "clock_s", "energy": "energy_j", "cost": "cost_spent"}
PANELS = (("time", "virtual time (s)"), ("energy", "energy spent by the fleet (J)"), ("cost", "cost spent by the fleet, ΣΩ"))
SERVED, PLAIN = "test_accuracy", "plain_test_metric"


def accuracy_rows(experiment: Experiment, curves: Sequence[Curve]) -> list[TableRow]:
    """Points of every curve on all axes; then every curve at the largest time, energy and cost that all of them reached."""
    labelled = {_label(experiment, curve): curve.runs for curve in curves}
    rows = [
        {"curve": curve, "axis": axis, "x": float(x), **_point(runs, axis, float(x))}
        for axis in AXES
        for curve, runs in labelled.items()
        for x in _grid(runs, axis)
    ]
    first = next(iter(labelled))
    for axis in AXES:
        common = min(_reach(run, axis) for runs in labelled.values() for run in runs)
        for curve, runs in labelled.items():
            ours, best = (_at(some, axis, common, SERVED) for some in (runs, labelled[first]))
            above = paired_difference(curve, first, ours, best)
            rows.append(
                {
                    "curve": curve,
                    "axis": f"common {axis}",
                    "x": common,
                    **_point(runs, axis, common),
                    "above_first": above.mean_difference,
                    "above_first_low": above.low,
                    "above_first_high": above.high,
                }
            )
    return rows


def seed_rows(experiment: Experiment, curves: Sequence[Curve]) -> list[TableRow]:
    """Every evaluation of every run, once on each axis."""
    return [
        dict(zip(SEED_COLUMNS, (_label(experiment, curve), run.summary["seed"], axis, x, *accuracies), strict=True))
        for axis, column in AXES.items()
        for curve in curves
        for run in curve.runs
        for x, *accuracies in ((getattr(one, column), one.test_accuracy, one.plain_test_metric) for one in run.evaluations)
    ]


def _label(experiment: Experiment, curve: Curve) -> str:
    if curve.value is None or experiment.sweep is None:
        return curve.scheme
    value = f"{swept_setting(experiment)} = {curve.value:g}"
    return f"{curve.scheme}, {value}" if len(experiment.schemes) > 1 else value


def _column(run: Outcome, name: str) -> NDArray[np.float64]:
    return np.array([getattr(evaluation, name) for evaluation in run.evaluations], np.float64)


def _reach(run: Outcome, axis: str) -> float:
    return float(_column(run, AXES[axis])[-1])


def _grid(runs: Sequence[Outcome], axis: str) -> NDArray[np.float64]:
    """Times at which all seeds were evaluated; evenly spaced energies and costs that all seeds spent."""
    if axis != "time":
        return np.linspace(0.0, min(_reach(run, axis) for run in runs), POINTS)
    shortest = min(len(run.evaluations) for run in runs) - 1
    return _column(runs[0], "clock_s")[:shortest]


def _at(runs: Sequence[Outcome], axis: str, x: float, model: str) -> list[float]:
    """The accuracy of every seed, between two evaluations by a straight line."""
    return [float(np.interp(x, _column(run, AXES[axis]), _column(run, model))) for run in runs]


def _point(runs: Sequence[Outcome], axis: str, x: float) -> dict[str, Any]:
    interval = mean_interval(_at(runs, axis, x, SERVED))
    nothing = {"above_first": None, "above_first_low": None, "above_first_high": None}
    plain: dict[str, float | None] = {"plain_test_accuracy": None, "plain_low": None, "plain_high": None}
    if runs[0].evaluations[0].plain_test_metric is not None:
        plain = dict(zip(plain, astuple(mean_interval(_at(runs, axis, x, PLAIN))), strict=True))
    served = {"test_accuracy": interval.mean, "low": interval.low, "high": interval.high}
    return {**served, "seeds": len(runs), **nothing, **plain}


def draw_accuracy(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    """Strong lines: the model that is served; dotted, faint ones: the plain model where that is another.

    Student's interval knows nothing of what an accuracy can be: it is drawn between 0 and 1, and kept whole in the CSV.
    """
    picture.set_size_inches(*SIZE_INCHES)
    panels = picture.subplots(1, len(PANELS), sharey=True)
    for axes, (axis, label) in zip(panels, PANELS, strict=True):
        for curve in dict.fromkeys(row["curve"] for row in table):
            rows = [row for row in table if row["curve"] == curve and row["axis"] == axis]
            x = [row["x"] for row in rows]
            (line,) = axes.plot(x, [row["test_accuracy"] for row in rows], label=curve)
            low, high = ([min(max(row[bound], 0.0), 1.0) for row in rows] for bound in ("low", "high"))
            axes.fill_between(x, low, high, alpha=0.1, color=line.get_color(), linewidth=0.0)
            if rows[0]["plain_test_accuracy"] is not None:
                plain = [row["plain_test_accuracy"] for row in rows]
                axes.plot(x, plain, color=line.get_color(), alpha=0.45, linewidth=0.7, linestyle=":")
        axes.set(xlabel=label)
    if any(row["plain_test_accuracy"] is not None for row in table):
        panels[-1].plot([], [], color="black", alpha=0.45, linewidth=0.7, linestyle=":", label="the same, not averaged")
    panels[0].set(ylabel=experiment.y_label)
    panels[-1].legend(loc="lower right")


KIND = Kind(
    accuracy_rows,
    draw_accuracy,
    per_seed=seed_rows,
    summary=lambda experiment, rows: summary_rows(rows, experiment.levels),
)
