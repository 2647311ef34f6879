"""Figure 5: total queue over the rounds, and by how much each curve still grows at its end."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from fedtwin.experiments.analysis.statistics import mean_interval
from fedtwin.experiments.specs.figure import Experiment
from fedtwin.figures.kinds.base import Curve, Kind, TableRow, naming_the_scheme, swept_setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAST_FIFTH = 0.8
FLAT_GROWTH = 0.02


def queue_rows(experiment: Experiment, curves: Sequence[Curve]) -> list[TableRow]:
    """The points of every curve. One has flattened when a line through its last fifth rises by less than 2 %."""
    return [row for curve in curves for row in _rows(experiment, curve)]


def _rows(experiment: Experiment, curve: Curve) -> list[TableRow]:
    rounds = curve.runs[0].series.rounds
    intervals = [mean_interval(column) for column in zip(*(run.series.total_queue for run in curve.runs), strict=True)]
    growth = growth_at_the_end(rounds, [interval.mean for interval in intervals])
    return [
        {
            **naming_the_scheme(experiment, curve.scheme),
            swept_setting(experiment): curve.value,
            "round": round_,
            "total_queue": interval.mean,
            "low": interval.low,
            "high": interval.high,
            "growth_over_last_fifth": growth,
            "flattened": abs(growth) < FLAT_GROWTH,
            "seeds": len(curve.runs),
        }
        for round_, interval in zip(rounds, intervals, strict=True)
    ]


def growth_at_the_end(rounds: Sequence[int], values: Sequence[float]) -> float:
    """Relative rise, over the last fifth of the rounds, of the straight line that fits the curve best there.

    In fractions, so that it has the same digits on every processor.
    """
    start = next(k for k, round_ in enumerate(rounds) if round_ >= LAST_FIFTH * rounds[-1])
    x, y = [Fraction(round_) for round_ in rounds[start:]], [Fraction(value) for value in values[start:]]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / sum((a - x_mean) ** 2 for a in x)
    first, last = (y_mean + slope * (end - x_mean) for end in (x[0], x[-1]))
    return float(last / first - 1) if first > 0 else 0.0


def draw_total_queue(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    axes = picture.add_subplot()
    key = swept_setting(experiment)
    curves = dict.fromkeys((row.get("scheme"), row[key]) for row in table)
    for scheme, value in reversed(curves):
        rows = [row for row in table if (row.get("scheme"), row[key]) == (scheme, value)]
        growth, flat = rows[-1]["growth_over_last_fifth"], "flat" if rows[-1]["flattened"] else "still growing"
        x = [row["round"] for row in rows]
        label = f"{f'{scheme}, ' if scheme else ''}V = {value:.0e}: {growth:+.1%} over the last fifth, {flat}"
        (line,) = axes.plot(x, [row["total_queue"] for row in rows], label=label)
        axes.fill_between(x, [row["low"] for row in rows], [row["high"] for row in rows], alpha=0.2, color=line.get_color())
    axes.legend(loc="upper left")
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.3)
    axes.set(xlabel=experiment.x_label, ylabel=experiment.y_label)


KIND = Kind(queue_rows, draw_total_queue)
