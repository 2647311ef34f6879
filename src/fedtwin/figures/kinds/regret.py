"""Regret: measured time-average regret beside the bound as printed, and with its first constant mended.

Neither is proven: docs/symbols.md says what else the proof takes for granted. The columns keep the names they have had.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedtwin.experiments.analysis.stationary import bound_with_first_constant_mended, paper_bound
from fedtwin.experiments.analysis.statistics import mean_interval
from fedtwin.experiments.specs.figure import Experiment
from fedtwin.figures.kinds.base import Curve, Kind, TableRow, naming_the_scheme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOUNDS = (("corrected_bound", "bound, first constant mended", "C3-"), ("paper_bound", "bound, as printed", "C1--"))


def regret_rows(experiment: Experiment, curves: Sequence[Curve]) -> list[TableRow]:
    """Time-average regret of every run against the best stationary policy of its own fleet, beside the two bounds."""
    return [row for curve in curves for row in _rows(experiment, curve)]


def _rows(experiment: Experiment, curve: Curve) -> list[TableRow]:
    config, runs = curve.config, curve.runs
    devices, least, v = config.fleet.devices, config.objective.min_mean_samples, config.policy.v
    known = [run.stationary for run in runs if run.stationary is not None]
    largest = max(stationary.largest_samples for stationary in known)
    rows = []
    for k, round_ in enumerate(runs[0].series.rounds):
        costs = [run.series.mean_cost[k] for run in runs]
        regret = mean_interval([c - s.with_busy_devices for c, s in zip(costs, known, strict=True)])
        rows.append(
            {
                **naming_the_scheme(experiment, curve.scheme),
                "round": round_,
                "mean_cost": mean_interval(costs).mean,
                "regret": regret.mean,
                "low": regret.low,
                "high": regret.high,
                "regret_if_never_busy": mean_interval([c - s.without for c, s in zip(costs, known, strict=True)]).mean,
                "best_stationary_cost": mean_interval([s.with_busy_devices for s in known]).mean,
                "best_stationary_cost_if_never_busy": mean_interval([s.without for s in known]).mean,
                "paper_bound": paper_bound(devices, least, v, round_),
                "corrected_bound": bound_with_first_constant_mended(devices, least, largest, v, round_),
                "seeds": len(runs),
            }
        )
    return rows


def draw_regret(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    axes = picture.add_subplot()
    schemes = list(dict.fromkeys(row.get("scheme") for row in table))
    first = [row for row in table if row.get("scheme") == schemes[0]]
    for column, label, style in BOUNDS:
        _line(axes, first, column, label, style)
    if schemes == [None]:
        never_busy = first[0]["best_stationary_cost_if_never_busy"]
        _line(axes, first, "regret_if_never_busy", f"measured, against s* = {never_busy:.3f} (devices never busy)", "C2:")
    for scheme, color in zip(schemes, ("C0", "C2", "C4", "C5", "C6", "C7", "C8", "C9") * len(schemes), strict=False):
        rows = [row for row in table if row.get("scheme") == scheme]
        whose = "measured" if scheme is None else scheme
        _line(axes, rows, "regret", f"{whose}, against s* = {rows[0]['best_stationary_cost']:.3f}", f"{color}-")
        x, low, high = ([row[name] for row in rows] for name in ("round", "low", "high"))
        axes.fill_between(x, low, high, alpha=0.2, color=color)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=0.1, linscale=2.0)
    axes.set_yticks([0, 0.02, 0.04, 0.06, 0.08, 0.1, 1, 10], ["0", "0.02", "0.04", "0.06", "0.08", "0.1", "1", "10"])
    axes.set_ylim(-0.01, 30)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    axes.set(xlabel=experiment.x_label, ylabel=experiment.y_label)


def _line(axes: "Axes", rows: list[TableRow], column: str, label: str, style: str) -> None:
    axes.plot([row["round"] for row in rows], [row[column] for row in rows], style, label=label)


KIND = Kind(regret_rows, draw_regret, stationary=True)
