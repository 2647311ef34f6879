"""What a learning curve is worth as a whole: its area, what it takes to a level, its end; in pairs by seed.

All is made of one row per evaluation, ``SEED_COLUMNS``, and of nothing else: the CSV of a figure's seeds gives the same table.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.experiments.analysis.statistics import mean_interval, paired_difference

Values = NDArray[np.float64]
SeedRow = Mapping[str, Any]
Found = Mapping[int, float | None]
"""A value per seed; None where a seed never comes to the level."""

SEED_COLUMNS = ("curve", "seed", "axis", "x", "test_accuracy", "plain_test_accuracy")
LAST_FIFTH = 0.8


class Points(NamedTuple):
    """A curve of one seed: straight lines between evaluations."""

    x: Values
    y: Values


def mean_between(points: Points, low: float, high: float) -> float:
    """The area under the curve from ``low`` to ``high``, divided by their distance."""
    inside = points.x[(points.x > low) & (points.x < high)]
    x = np.concatenate(([low], inside, [high]))
    y = np.interp(x, points.x, points.y)
    return float(np.sum((y[1:] + y[:-1]) / 2.0 * np.diff(x)) / (high - low))


def first_reach(points: Points, level: float) -> float | None:
    """Where the curve first comes to the level; None where it never does."""
    there = np.flatnonzero(points.y >= level)
    if len(there) == 0:
        return None
    k = int(there[0])
    if k == 0:
        return float(points.x[0])
    share = (level - points.y[k - 1]) / (points.y[k] - points.y[k - 1])
    return float(points.x[k - 1] + share * (points.x[k] - points.x[k - 1]))


def summary_rows(rows: Sequence[SeedRow], levels: Sequence[float]) -> list[dict[str, Any]]:
    """A row per axis, model, metric and curve: mean over the seeds with its interval, and the difference from the first curve.

    ``area`` is the mean accuracy up to ``x_end``, the largest x that every run reached; ``end`` that over its last fifth;
    ``to`` the x at which ``level`` is first reached. Differences are paired by seed. A seed that never reaches a level is in
    ``seeds`` and not in ``reached``, a pair of which one does not is not in ``pairs``: the numbers are over the others.
    """
    axes, curves = (list(dict.fromkeys(row[name] for row in rows)) for name in ("axis", "curve"))
    return [
        {"axis": axis, "model": model, **row}
        for axis in axes
        for model, column in _models(rows).items()
        for row in _of_axis([row for row in rows if row["axis"] == axis], curves, column, levels)
    ]


def _models(rows: Sequence[SeedRow]) -> dict[str, str]:
    """Which column a model's accuracy is in: where nothing is averaged, the model that is served is the plain one."""
    if all(row["plain_test_accuracy"] in (None, "") for row in rows):
        return {"plain": "test_accuracy"}
    return {"averaged": "test_accuracy", "plain": "plain_test_accuracy"}


def _of_axis(rows: Sequence[SeedRow], curves: Sequence[str], column: str, levels: Sequence[float]) -> list[dict[str, Any]]:
    points = {curve: points_of([row for row in rows if row["curve"] == curve], column) for curve in curves}
    end = min(float(one.x[-1]) for of_seeds in points.values() for one in of_seeds.values())
    found = []
    for metric, low in (("area", 0.0), ("end", LAST_FIFTH * end)):
        values = {curve: {seed: mean_between(p, low, end) for seed, p in points[curve].items()} for curve in curves}
        found += [_row(metric, None, end, curve, values[curve], values[curves[0]]) for curve in curves]
    for level in levels:
        reached = {curve: {seed: first_reach(p, level) for seed, p in points[curve].items()} for curve in curves}
        found += [_row("to", level, end, curve, reached[curve], reached[curves[0]]) for curve in curves]
    return found


def points_of(rows: Sequence[SeedRow], column: str) -> dict[int, Points]:
    """By seed, of rows that are all of one curve and one axis."""
    found: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        found.setdefault(int(row["seed"]), []).append((float(row["x"]), float(row[column])))
    return {seed: Points(*np.array(pairs, np.float64).T) for seed, pairs in found.items()}


def _row(metric: str, level: float | None, end: float, curve: str, ours: Found, first: Found) -> dict[str, Any]:
    known = [value for value in ours.values() if value is not None]
    pairs = [(a, b) for seed, a in ours.items() if a is not None and (b := first.get(seed)) is not None]
    mean = mean_interval(known) if known else None
    above = paired_difference("", "", *zip(*pairs, strict=True)) if pairs else None
    return {
        "metric": metric,
        "level": level,
        "x_end": end,
        "curve": curve,
        "seeds": len(ours),
        "reached": len(known),
        "mean": mean and mean.mean,
        "low": mean and mean.low,
        "high": mean and mean.high,
        "pairs": len(pairs),
        "above_first": above and above.mean_difference,
        "above_first_low": above and above.low,
        "above_first_high": above and above.high,
        "p_value": above and above.p_value,
    }
