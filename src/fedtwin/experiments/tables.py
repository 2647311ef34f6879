"""From an experiment's runs to the table behind its figure: one row per point of a curve, ready for CSV."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtwin.experiments.accuracy import accuracy_rows
from fedtwin.experiments.batch import Backend, Job, Outcome, Progress, run_batch, with_selections
from fedtwin.experiments.spec import Experiment, Profile
from fedtwin.experiments.stationary import corrected_bound, paper_bound
from fedtwin.experiments.statistics import mean_interval, paired_difference

TableRow = dict[str, Any]
LAST_FIFTH = 0.8
FLAT_GROWTH = 0.02


def figure_jobs(experiment: Experiment, profile: Profile) -> list[Job]:
    rounds = experiment.profiles[profile].rounds
    checkpoints = experiment.sampling.rounds(rounds) if experiment.sampling else ()
    return [Job(config, checkpoints, experiment.kind == "regret") for _, _, config in experiment.configs(profile)]


def figure_table(
    experiment: Experiment,
    profile: Profile,
    *,
    workers: int | None = None,
    backend: Backend | None = None,
    journal: Path | None = None,
    progress: Progress | None = None,
) -> list[TableRow]:
    """Runs what is not in the journal yet, and tabulates."""
    jobs = figure_jobs(experiment, profile)
    outcomes = run_batch(jobs, workers=workers, backend=backend, journal=journal, progress=progress)
    curves: dict[tuple[str, float | None], list[Outcome]] = {}
    for (scheme, value, _), outcome in zip(experiment.configs(profile), with_selections(jobs, outcomes), strict=True):
        curves.setdefault((scheme, value), []).append(outcome)
    if experiment.kind == "accuracy":
        return accuracy_rows(experiment, curves)
    if experiment.kind == "regret":
        return _regret_rows(jobs[0], next(iter(curves.values())))
    if experiment.kind == "total-queue":
        return [row for (_, value), runs in curves.items() for row in _queue_rows(experiment, value, runs)]
    reference = experiment.schemes[0]
    return [
        _cost_row(experiment, scheme, value, runs, reference, curves[reference, value])
        for (scheme, value), runs in curves.items()
    ]


def _cost_row(
    experiment: Experiment,
    scheme: str,
    value: float | None,
    runs: Sequence[Outcome],
    reference: str,
    reference_runs: Sequence[Outcome],
) -> TableRow:
    """Figures 3 and 4: mean cost with its interval, and how much it is above the first scheme, world by world."""
    costs = [run.summary["mean_cost"] for run in runs]
    cost = mean_interval(costs)
    above = paired_difference(scheme, reference, costs, [run.summary["mean_cost"] for run in reference_runs])
    least = mean_interval([run.summary["least_mean_samples"] for run in runs])
    return {
        "scheme": scheme,
        _key(experiment): value,
        "mean_cost": cost.mean,
        "low": cost.low,
        "high": cost.high,
        f"above_{reference}": above.mean_difference,
        "above_low": above.low,
        "above_high": above.high,
        "mean_time_s": mean_interval([run.summary["mean_time_s"] for run in runs]).mean,
        "mean_energy_j": mean_interval([run.summary["mean_energy_j"] for run in runs]).mean,
        "least_mean_samples": least.mean,
        "seeds": len(runs),
        "rounds": runs[0].summary["rounds"],
    }


def _queue_rows(experiment: Experiment, value: float | None, runs: Sequence[Outcome]) -> list[TableRow]:
    """Figure 5: total queue over rounds. A curve has flattened when a line through its last fifth rises by less than 2 %."""
    rounds = runs[0].series.rounds
    intervals = [mean_interval(column) for column in zip(*(run.series.total_queue for run in runs), strict=True)]
    growth = _growth_at_the_end(rounds, [interval.mean for interval in intervals])
    return [
        {
            _key(experiment): value,
            "round": round_,
            "total_queue": interval.mean,
            "low": interval.low,
            "high": interval.high,
            "growth_over_last_fifth": growth,
            "flattened": abs(growth) < FLAT_GROWTH,
            "seeds": len(runs),
        }
        for round_, interval in zip(rounds, intervals, strict=True)
    ]


def _growth_at_the_end(rounds: Sequence[int], values: Sequence[float]) -> float:
    """Relative rise, over the last fifth of the rounds, of the straight line that fits the curve best there."""
    start = next(k for k, round_ in enumerate(rounds) if round_ >= LAST_FIFTH * rounds[-1])
    slope, offset = np.polyfit(rounds[start:], values[start:], 1)
    first, last = (float(slope) * round_ + float(offset) for round_ in (rounds[start], rounds[-1]))
    return last / first - 1.0 if first > 0.0 else 0.0


def _regret_rows(job: Job, runs: Sequence[Outcome]) -> list[TableRow]:
    """Time-average regret of every run against the best stationary policy of its own fleet, beside the two bounds."""
    config = job.config
    devices, least, v = config.fleet.devices, config.objective.min_mean_samples, config.policy.v
    known = [run.stationary for run in runs if run.stationary is not None]
    largest = max(stationary.largest_samples for stationary in known)
    rows = []
    for k, round_ in enumerate(runs[0].series.rounds):
        costs = [run.series.mean_cost[k] for run in runs]
        regret = mean_interval([c - s.with_busy_devices for c, s in zip(costs, known, strict=True)])
        rows.append(
            {
                "round": round_,
                "mean_cost": mean_interval(costs).mean,
                "regret": regret.mean,
                "low": regret.low,
                "high": regret.high,
                "regret_if_never_busy": mean_interval([c - s.without for c, s in zip(costs, known, strict=True)]).mean,
                "best_stationary_cost": mean_interval([s.with_busy_devices for s in known]).mean,
                "best_stationary_cost_if_never_busy": mean_interval([s.without for s in known]).mean,
                "paper_bound": paper_bound(devices, least, v, round_),
                "corrected_bound": corrected_bound(devices, least, largest, v, round_),
                "seeds": len(runs),
            }
        )
    return rows


def _key(experiment: Experiment) -> str:
    return experiment.sweep.key.partition(".")[2] if experiment.sweep else "value"
