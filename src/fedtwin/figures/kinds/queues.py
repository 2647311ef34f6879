"""Queues: total queue over the rounds, and the longest queue per round: mean-rate stability means that it goes to 0."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedtwin.experiments.analysis.statistics import mean_interval
from fedtwin.experiments.specs.figure import Experiment
from fedtwin.figures.kinds.base import Curve, Kind, TableRow, swept_setting
from fedtwin.figures.kinds.total_queue import FLAT_GROWTH, growth_at_the_end

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def queues_rows(experiment: Experiment, curves: Sequence[Curve]) -> list[TableRow]:
    """The points of every curve; max_n Q_n(t)/t is that of each fleet, then the mean over them."""
    return [row for curve in curves for row in _rows(experiment, curve)]


def _rows(experiment: Experiment, curve: Curve) -> list[TableRow]:
    rounds = curve.runs[0].series.rounds
    totals = [mean_interval(column) for column in zip(*(run.series.total_queue for run in curve.runs), strict=True)]
    rates = [
        mean_interval([longest / round_ for longest in column])
        for round_, column in zip(rounds, zip(*(run.series.longest_queue for run in curve.runs), strict=True), strict=True)
    ]
    growth = growth_at_the_end(rounds, [total.mean for total in totals])
    return [
        {
            "scheme": curve.scheme,
            swept_setting(experiment): curve.value,
            "round": round_,
            "total_queue": total.mean,
            "low": total.low,
            "high": total.high,
            "growth_over_last_fifth": growth,
            "flattened": abs(growth) < FLAT_GROWTH,
            "longest_queue_per_round": rate.mean,
            "rate_low": rate.low,
            "rate_high": rate.high,
            "seeds": len(curve.runs),
        }
        for round_, total, rate in zip(rounds, totals, rates, strict=True)
    ]


def draw_queues(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    """A column for every scheme: above the total, below the rate, with both axes by ratio."""
    schemes = list(dict.fromkeys(row["scheme"] for row in table))
    picture.set_size_inches(5.0 * len(schemes), 7.6)
    panels = picture.subplots(2, len(schemes), squeeze=False)
    for scheme, total, rate in zip(schemes, *panels, strict=True):
        rows = [row for row in table if row["scheme"] == scheme]
        _curves(total, experiment, rows, ("total_queue", "low", "high"))
        _curves(rate, experiment, rows, ("longest_queue_per_round", "rate_low", "rate_high"))
        total.set(title=scheme, xlabel=experiment.x_label, ylabel=experiment.y_label)
        total.set_ylim(bottom=0, top=total.get_ylim()[1] * 1.6)
        total.legend(loc="upper left")
        rate.set(xlabel=experiment.x_label, ylabel="longest queue per round, max Q_n(t) / t", xscale="log", yscale="log")


def _curves(axes: "Axes", experiment: Experiment, table: list[TableRow], columns: tuple[str, str, str]) -> None:
    key = swept_setting(experiment)
    for value in reversed(dict.fromkeys(row[key] for row in table)):
        rows = [row for row in table if row[key] == value and row[columns[0]] > 0]
        growth, flat = rows[-1]["growth_over_last_fifth"], "flat" if rows[-1]["flattened"] else "still growing"
        x, y, low, high = ([row[name] for row in rows] for name in ("round", *columns))
        (line,) = axes.plot(x, y, label=f"V = {value:.0e}: {growth:+.1%} over the last fifth, {flat}")
        axes.fill_between(x, low, high, alpha=0.2, color=line.get_color())


KIND = Kind(queues_rows, draw_queues, queues=True)
