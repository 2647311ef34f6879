"""Figures 6 to 9: test accuracy against virtual time and against energy spent, mean and interval over seeds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.experiments.analysis.statistics import mean_interval, paired_difference
from fedtwin.experiments.batches.job import Outcome
from fedtwin.experiments.specs.figure import Experiment
from fedtwin.figures.kinds.base import Curve, Kind, TableRow, swept_setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENERGY_POINTS = 60
AXES = {"time": "clock_s", "energy": "energy_j"}
PANELS = (("time", "virtual time (s)"), ("energy", "energy spent by the fleet (J)"))


def accuracy_rows(experiment: Experiment, curves: Sequence[Curve]) -> list[TableRow]:
    """Points of every curve on both axes; then every curve at the largest time and energy that all of them reached."""
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
            ours, best = (_at(some, axis, common) for some in (runs, labelled[first]))
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
    """Times at which all seeds were evaluated; evenly spaced energies that all seeds spent."""
    if axis == "energy":
        return np.linspace(0.0, min(_reach(run, axis) for run in runs), ENERGY_POINTS)
    shortest = min(len(run.evaluations) for run in runs) - 1
    return _column(runs[0], "clock_s")[:shortest]


def _at(runs: Sequence[Outcome], axis: str, x: float) -> list[float]:
    """The accuracy of every seed, between two evaluations by a straight line."""
    return [float(np.interp(x, _column(run, AXES[axis]), _column(run, "test_accuracy"))) for run in runs]


def _point(runs: Sequence[Outcome], axis: str, x: float) -> dict[str, Any]:
    interval = mean_interval(_at(runs, axis, x))
    nothing = {"above_first": None, "above_first_low": None, "above_first_high": None}
    return {"test_accuracy": interval.mean, "low": interval.low, "high": interval.high, "seeds": len(runs), **nothing}


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


KIND = Kind(accuracy_rows, draw_accuracy)
