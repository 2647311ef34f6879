"""Theorem 1: the least ‖∇L(w)‖² so far against T·D̂_min, beside the bound with constants measured along the same runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedtwin.errors import FedtwinError
from fedtwin.experiments.analysis.statistics import mean_interval
from fedtwin.experiments.analysis.theorem import Terms, theorem_1_terms
from fedtwin.experiments.batches.job import Outcome
from fedtwin.experiments.specs.figure import Experiment
from fedtwin.figures.kinds.base import Curve, Kind, TableRow
from fedtwin.learning.evaluation import Evaluation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def theorem_rows(_: Experiment, curves: Sequence[Curve]) -> list[TableRow]:
    """A row per curve and T; the constants of a row are means over the seeds."""
    return [_row(curve, rounds) for curve in curves for rounds in curve.runs[0].series.rounds]


def _recorded(evaluation: Evaluation) -> float:
    if evaluation.gradient_norm2 is None:
        raise FedtwinError("The figure of Theorem 1 needs learning.record_gradient = true.")
    return evaluation.gradient_norm2


def _row(curve: Curve, rounds: int) -> TableRow:
    least = curve.config.fleet.samples_min
    so_far = [_until(run, rounds) for run in curve.runs]
    norm2 = mean_interval([min(_recorded(one) for one in evaluations) for evaluations in so_far])
    terms = [_terms(curve, run, evaluations, rounds) for run, evaluations in zip(curve.runs, so_far, strict=True)]
    constants = [run.constants for run in curve.runs if run.constants is not None]
    return {
        "curve": curve.scheme,
        "samples_per_upload": least,
        "rounds": rounds,
        "rounds_times_samples": rounds * least,
        "least_gradient_norm2": norm2.mean,
        "low": norm2.low,
        "high": norm2.high,
        "global_loss": mean_interval([evaluations[-1].global_loss or 0.0 for evaluations in so_far]).mean,
        **{f"term_{k + 1}": mean_interval([found[k] for found in terms]).mean for k in range(len(Terms._fields))},
        "bound": mean_interval([sum(found) for found in terms]).mean,
        **{name: mean_interval([getattr(found, name) for found in constants]).mean for name in ("a1", "a2", "beta", "moved2")},
        "max_staleness": max(run.summary["max_staleness"] for run in curve.runs),
        "seeds": len(curve.runs),
    }


def _until(run: Outcome, rounds: int) -> list[Evaluation]:
    return [evaluation for evaluation in run.evaluations if evaluation.round <= rounds]


def _terms(curve: Curve, run: Outcome, evaluations: Sequence[Evaluation], rounds: int) -> Terms:
    assert run.constants is not None, "asked for by the kind"
    fallen = (evaluations[0].global_loss or 0.0) - (evaluations[-1].global_loss or 0.0)
    delta = run.summary["max_staleness"]
    return theorem_1_terms(curve.config, run.constants, loss_fallen=fallen, max_staleness=delta, rounds=rounds)


def draw_theorem(picture: "Figure", experiment: Experiment, table: list[TableRow]) -> None:
    """Left what is measured, right the bound: its first term, the only one that falls, and all five."""
    picture.set_size_inches(10.0, 4.6)
    measured, bounds = picture.subplots(1, 2)
    for number, curve in enumerate(dict.fromkeys(row["curve"] for row in table)):
        rows, color = [row for row in table if row["curve"] == curve], f"C{number % 10}"
        x, y, low, high = (
            [row[name] for row in rows] for name in ("rounds_times_samples", "least_gradient_norm2", "low", "high")
        )
        for axes in (measured, bounds):
            axes.plot(x, y, color=color, label=curve if axes is measured else None)
        shown = [end > 0.0 for end in low]  # an interval of few seeds may reach below 0, where a logarithmic axis has no place
        measured.fill_between(x, low, high, where=shown, alpha=0.2, color=color)
        falling = [(row["rounds_times_samples"], row["term_1"]) for row in rows if row["term_1"] > 0.0]
        bounds.plot(*zip(*falling, strict=True), color=color, linestyle=":")
        bounds.plot(x, [row["bound"] for row in rows], color=color, linestyle="--")
    for axes in (measured, bounds):
        axes.set(xlabel=experiment.x_label, xscale="log", yscale="log")
    measured.set(ylabel=experiment.y_label)
    measured.legend(loc="best")
    for style, label in (("-", "measured"), (":", "first term of the bound"), ("--", "whole bound (O(x) = x, ε₀ = 1)")):
        bounds.plot([], [], color="black", linestyle=style, label=label)
    bounds.legend(loc="best")


KIND = Kind(theorem_rows, draw_theorem, constants=True)
