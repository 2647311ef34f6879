"""Figures 6 to 9: test accuracy against virtual time and against energy spent, mean and interval over seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.experiments.batch import Outcome
from fedtwin.experiments.spec import Experiment
from fedtwin.experiments.statistics import mean_interval, paired_difference

Curves = Mapping[tuple[str, float | None], Sequence[Outcome]]
ENERGY_POINTS = 60
AXES = {"time": "clock_s", "energy": "energy_j"}


def accuracy_rows(experiment: Experiment, curves: Curves) -> list[dict[str, Any]]:
    """Points of every curve on both axes; then every curve at the largest time and energy that all of them reached."""
    labelled = {_label(experiment, scheme, value): list(runs) for (scheme, value), runs in curves.items()}
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


def _label(experiment: Experiment, scheme: str, value: float | None) -> str:
    return scheme if value is None or experiment.sweep is None else f"{experiment.sweep.key.partition('.')[2]} = {value:g}"


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
