"""What each step from the first scheme to the last takes off the cost, and its share of the whole gain."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from fedtwin.experiments.analysis.statistics import mean_interval
from fedtwin.experiments.specs.figure import Experiment
from fedtwin.figures.kinds.base import Curve, Kind, TableRow, swept_setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("C0", "C1", "C2", "C4")


def decomposition_rows(experiment: Experiment, curves: Sequence[Curve]) -> list[TableRow]:
    """One row per value and step: means over fleets of what the step takes off, and of its share in that fleet's gain."""
    by_value: dict[float | None, list[Curve]] = {}
    for curve in curves:
        by_value.setdefault(curve.value, []).append(curve)
    return [row for steps in by_value.values() for pair in pairwise(steps) for row in [_row(experiment, steps, *pair)]]


def _row(experiment: Experiment, steps: Sequence[Curve], before: Curve, after: Curve) -> TableRow:
    first, start, end, last = (_costs(curve) for curve in (steps[0], before, after, steps[-1]))
    gains = [a - b for a, b in zip(start, end, strict=True)]
    whole = [a - b for a, b in zip(first, last, strict=True)]
    gain = mean_interval(gains)
    share = mean_interval([part / all_ if all_ else math.nan for part, all_ in zip(gains, whole, strict=True)])
    return {
        swept_setting(experiment): before.value,
        "from": before.scheme,
        "to": after.scheme,
        "mean_cost_from": mean_interval(start).mean,
        "mean_cost_to": mean_interval(end).mean,
        "gain": gain.mean,
        "low": gain.low,
        "high": gain.high,
        "share": share.mean,
        "share_low": share.low,
        "share_high": share.high,
        "seeds": len(before.runs),
        "rounds": before.runs[0].summary["rounds"],
    }


def _costs(curve: Curve) -> list[float]:
    return [run.summary["mean_cost"] for run in curve.runs]


def draw_decomposition(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    picture.set_size_inches(10.0, 4.6)
    gains, shares = picture.subplots(1, 2)
    key = swept_setting(experiment)
    for number, step in enumerate(dict.fromkeys((row["from"], row["to"]) for row in table)):
        rows = [row for row in table if (row["from"], row["to"]) == step]
        x, color = [row[key] for row in rows], COLORS[number % len(COLORS)]
        for axes, what, ends, unit in (
            (gains, "gain", ("low", "high"), 1),
            (shares, "share", ("share_low", "share_high"), 100),
        ):
            y, low, high = ([unit * row[name] for row in rows] for name in (what, *ends))
            axes.plot(x, y, marker="o", color=color, label=" → ".join(step))
            axes.fill_between(x, low, high, alpha=0.2, color=color)
    for axes in (gains, shares):
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.set(xlabel=experiment.x_label, xticks=sorted({row[key] for row in table}))
    gains.set(ylabel=experiment.y_label)
    shares.set(ylabel="share of the whole gain (%)")
    gains.legend(loc="upper left")


KIND = Kind(decomposition_rows, draw_decomposition, least_schemes=2)
