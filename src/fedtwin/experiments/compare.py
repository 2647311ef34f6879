"""Schemes on the same worlds: means with intervals, and paired differences; by running them, or from run folders."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from fedtwin.config import Config, beside, build_config, load_config, replace_settings, settings
from fedtwin.errors import FedtwinError
from fedtwin.experiments.batch import Backend, Job, Progress, run_batch, with_selections
from fedtwin.experiments.statistics import PairedDifference, mean_interval, paired_difference
from fedtwin.records.folder import CONFIG_NAME, read_summary
from fedtwin.registry import find_scheme

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
MEANS_OF_TRAINING = ("test_loss", "test_accuracy", "refusals")
A_SCHEME_IS_MADE_OF = ("policy.", "run.mode")
CHANGE_NO_NUMBER = ("run.seed", "run.engine", "run.records", "learning.executor", "learning.device", "learning.workers")

Summaries = dict[str, dict[int, dict[str, Any]]]


@dataclass(frozen=True)
class Comparison:
    """``summaries[scheme][seed]``, one run each."""

    summaries: Summaries
    paired: list[PairedDifference]

    def as_dict(self) -> dict[str, Any]:
        """What ``fedtwin compare --json`` prints."""
        return {
            "schemes": {scheme: self.means(scheme) for scheme in self.summaries},
            "paired": [{**asdict(pair), "significant": pair.significant} for pair in self.paired],
            "runs": [summary for by_seed in self.summaries.values() for summary in by_seed.values()],
        }

    def means(self, scheme: str) -> dict[str, Any]:
        runs = list(self.summaries[scheme].values())
        names = [*MEANS, *(name for name in MEANS_OF_TRAINING if all(name in run for run in runs))]
        means: dict[str, Any] = {name: mean_interval([run[name] for run in runs]).mean for name in names}
        cost = mean_interval([run["mean_cost"] for run in runs])
        return {**means, "mean_cost_low": cost.low, "mean_cost_high": cost.high, "seeds": len(runs)}


def scheme_config(base: Config, name: str) -> Config:
    """The base configuration under another scheme or policy; a power rule the user set stays."""
    mode = {} if find_scheme(name) else {"run.mode": base.run.mode}
    return replace_settings(base, {**mode, "policy.name": name})


def compare_schemes(
    base: Config,
    names: Sequence[str],
    seeds: int,
    *,
    folder: Path | None = None,
    workers: int | None = None,
    backend: Backend | None = None,
    journal: Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Runs every scheme on the same ``seeds`` worlds. Code of the user's is looked for in ``folder`` first."""
    jobs = comparison_jobs(base, names, seeds, folder)
    outcomes = run_batch(jobs, workers=workers, backend=backend, journal=journal, progress=progress)
    runs = zip(jobs, with_selections(jobs, outcomes), strict=True)
    return _comparison(
        (label(job.config, outcome.summary["scheme"]), job.config.run.seed, outcome.summary) for job, outcome in runs
    )


def comparison_jobs(base: Config, names: Sequence[str], seeds: int, folder: Path | None = None) -> list[Job]:
    """The runs of a comparison."""
    schemes = [scheme_config(base, name) for name in names]
    if folder is not None:
        schemes = [beside(config, folder, Path.cwd()) for config in schemes]
    return [Job(replace_settings(scheme, {"run.seed": base.run.seed + k})) for scheme in schemes for k in range(seeds)]


def compare_folders(folders: Sequence[Path]) -> Comparison:
    """Compares finished run folders as they are. They must differ in policy, mode and seed only."""
    runs = []
    for folder in folders:
        summary = read_summary(folder)
        if summary["mean_cost"] is None:
            raise FedtwinError(f"{str(folder)!r} made no selection: every device declined every round.")
        runs.append((load_config(folder / CONFIG_NAME), summary, folder))
    first_config, first_summary, first_folder = runs[0]
    world = _world_of(first_config)
    for config, summary, folder in runs[1:]:
        other = _world_of(config)
        for name in sorted(other.keys() | world.keys()):
            if world.get(name) != other.get(name):
                raise FedtwinError(
                    f"{str(folder)!r} cannot be compared with {str(first_folder)!r}: "
                    f"{name} is {other.get(name)!r} in one and {world.get(name)!r} in the other."
                )
        if summary.get("model_code") != first_summary.get("model_code"):
            raise FedtwinError(
                f"{str(folder)!r} cannot be compared with {str(first_folder)!r}: the code of learning.model differs."
            )
    named = [(label(config, summary["scheme"]), str(summary.get("policy_code", ""))) for config, summary, _ in runs]
    several = {name for name, code in named if any(other == name and one != code for other, one in named)}
    names = [f"{name} [{code[:8]}]" if name in several else name for name, code in named]
    return _comparison((name, config.run.seed, summary) for name, (config, summary, _) in zip(names, runs, strict=True))


def _comparison(runs: Any) -> Comparison:
    summaries: Summaries = {}
    for name, seed, summary in runs:
        by_seed = summaries.setdefault(name, {})
        if seed in by_seed:
            raise FedtwinError(f"{name} with run.seed = {seed} is there twice: leave one out.")
        by_seed[seed] = summary
    return Comparison(summaries, [_pair(summaries, first, second) for first, second in combinations(summaries, 2)])


def _pair(summaries: Summaries, first: str, second: str) -> PairedDifference:
    seeds = sorted(summaries[first].keys() & summaries[second].keys())
    if not seeds:
        raise FedtwinError(f"{first} and {second} share no run.seed: run both with the same seeds.")
    a, b = ([summaries[name][seed]["mean_cost"] for seed in seeds] for name in (first, second))
    return paired_difference(first, second, a, b)


def label(config: Config, scheme: str) -> str:
    """A scheme's name, with the policy settings that are not the defaults."""
    default = build_config({}, {}).policy
    changed = [
        f"{key}={getattr(config.policy, key)}"
        for key in ("v", "bonus_scale", "feedback")
        if getattr(config.policy, key) != getattr(default, key)
    ]
    return " ".join([scheme, *changed])


def _world_of(config: Config) -> Mapping[str, Any]:
    return {
        name: value
        for name, value in settings(config).items()
        if not name.startswith(A_SCHEME_IS_MADE_OF) and name not in CHANGE_NO_NUMBER
    }
