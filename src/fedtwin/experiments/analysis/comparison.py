"""Runs of several schemes on the same worlds: a row each, means with intervals, and paired differences of any metric."""

import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import pyarrow as pa

from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.analysis.metrics import chosen_metrics
from fedtwin.experiments.analysis.statistics import PairedDifference, mean_interval, paired_difference
from fedtwin.experiments.analysis.summaries import TO_ACCURACY, summary_columns
from fedtwin.records.reading import OF_A_TIMEOUT, OF_TRAINING

MEANS = (
    "mean_cost",
    "mean_time_s",
    "mean_energy_j",
    "virtual_time_s",
    "rounds",
    "declines",
    "least_mean_samples",
    "total_queue",
)
NAN = float("nan")
Summaries = dict[str, dict[int, dict[str, Any]]]


@dataclass(frozen=True)
class Comparison:
    """``summaries[scheme][seed]``, one run each; ``metrics`` are those asked for, ``accuracy`` the one to reach, if any."""

    summaries: Summaries
    metrics: tuple[str, ...] = ("mean_cost",)
    accuracy: float | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per scheme and seed: all of the run's summary."""
        return [
            {**summary, "scheme": scheme, "seed": seed}
            for scheme, by_seed in self.summaries.items()
            for seed, summary in by_seed.items()
        ]

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        return pa.table(summary_columns(self.rows))

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame (needs pandas)."""
        return self.table.to_pandas()

    def means(self, scheme: str) -> dict[str, Any]:
        """Means over the seeds of a scheme; of a metric that some run lacks there is none."""
        runs = list(self.summaries[scheme].values())
        names = [*MEANS, *(name for name in (*OF_TRAINING, *OF_A_TIMEOUT) if all(name in run for run in runs)), *self.metrics]
        means: dict[str, Any] = {}
        for name in dict.fromkeys(names):
            values = [run[name] for run in runs if run.get(name) is not None]
            means[name] = mean_interval(values).mean if len(values) == len(runs) else None
        cost = mean_interval([run["mean_cost"] for run in runs])
        return {**means, "mean_cost_low": cost.low, "mean_cost_high": cost.high, "seeds": len(runs)}

    def paired(self, metric: str = "mean_cost") -> list[PairedDifference]:
        """Differences of a metric between every two schemes, over the seeds at which both have it.

        Seeds that are left out for want of a value are named, in the result and in a warning.
        """
        chosen_metrics(metric, self.accuracy, trains=all("test_accuracy" in row for row in self.rows))
        if sentence := self.missing(metric):
            warnings.warn(sentence, FedtwinWarning, stacklevel=2)
        return [self._pair(first, second, metric) for first, second in combinations(self.summaries, 2)]

    def missing(self, metric: str) -> str | None:
        """One sentence about the runs that lack a metric; None where none does."""
        lacking = {
            scheme: [seed for seed, summary in by_seed.items() if summary.get(metric) is None]
            for scheme, by_seed in self.summaries.items()
        }
        named = [
            f"{scheme} with seed {', '.join(map(str, seeds))} ({len(seeds)} of {len(self.summaries[scheme])} runs)"
            for scheme, seeds in lacking.items()
            if seeds
        ]
        if not named:
            return None
        why = f"never reached the accuracy {self.accuracy:g}" if metric in TO_ACCURACY else "have no value"
        return f"{metric}: {'; '.join(named)} {why}; their pairs are left out."

    def as_dict(self) -> dict[str, Any]:
        """What ``fedtwin compare --json`` prints."""
        return self._report

    @cached_property
    def _report(self) -> dict[str, Any]:
        pairs = [pair for metric in self.metrics for pair in self.paired(metric)]
        return {
            "schemes": {scheme: self.means(scheme) for scheme in self.summaries},
            "paired": [{**asdict(pair), "significant": pair.significant} for pair in pairs],
            "runs": self.rows,
        }

    def _pair(self, first: str, second: str, metric: str) -> PairedDifference:
        a, b = (
            {seed: summary[metric] for seed, summary in self.summaries[name].items() if summary.get(metric) is not None}
            for name in (first, second)
        )
        seeds = sorted(a.keys() & b.keys())
        left_out = tuple(sorted((self.summaries[first].keys() | self.summaries[second].keys()) - set(seeds)))
        if not seeds:
            return PairedDifference(first, second, 0, NAN, NAN, NAN, None, metric, left_out)
        pair = paired_difference(first, second, [a[seed] for seed in seeds], [b[seed] for seed in seeds])
        return replace(pair, metric=metric, left_out=left_out)


def comparison_of(
    runs: Iterable[tuple[str, int, dict[str, Any]]], metrics: tuple[str, ...] = ("mean_cost",), accuracy: float | None = None
) -> Comparison:
    """From (scheme, seed, summary); the same scheme and seed twice, or schemes without a common seed, are an error."""
    summaries: Summaries = {}
    for name, seed, summary in runs:
        by_seed = summaries.setdefault(name, {})
        if seed in by_seed:
            raise FedtwinError(f"{name} with run.seed = {seed} is there twice: leave one out.")
        by_seed[seed] = summary
    for first, second in combinations(summaries, 2):
        if not summaries[first].keys() & summaries[second].keys():
            raise FedtwinError(f"{first} and {second} share no run.seed: run both with the same seeds.")
    return Comparison(_nothing_dropped_is_none(summaries), metrics, accuracy)


def _nothing_dropped_is_none(summaries: Summaries) -> Summaries:
    """A run without a timeout drops nothing: where another has one, that is 0, and not missing."""
    if not any("drops" in summary for by_seed in summaries.values() for summary in by_seed.values()):
        return summaries
    return {
        name: {seed: {"drops": 0, "wasted_energy_j": 0.0, **summary} for seed, summary in by_seed.items()}
        for name, by_seed in summaries.items()
    }
