"""From an experiment to the tables behind its figure: one row per point of a curve, ready for CSV."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.batch import Job, Outcome, with_selections
from fedtwin.experiments.specs.figure import Experiment, Profile
from fedtwin.figures.kinds import Curve, TableRow, kind_of


def figure_jobs(experiment: Experiment, profile: Profile) -> list[Job]:
    """The runs of a figure."""
    kind = kind_of(experiment)
    if len(experiment.schemes) < kind.least_schemes:
        raise FedtwinError(f"Figure {experiment.figure} needs {kind.least_schemes} schemes or more: name them with --schemes.")
    rounds = experiment.profiles[profile].rounds
    checkpoints = experiment.sampling.rounds(rounds) if experiment.sampling else ()
    runs = experiment.configs(profile)
    for scheme, _, config in runs:
        if kind.stationary and config.run.mode != "async":
            raise FedtwinError(f"{scheme} is synchronous: figure {experiment.figure} is of schemes that select one by one.")
    jobs = [Job(config, checkpoints, kind.stationary, kind.queues, kind.constants) for _, _, config in runs]
    if len({job.key for job in jobs}) < len(jobs):
        raise FedtwinError(f"The schemes {', '.join(experiment.schemes)} of a figure have the same one twice: leave one out.")
    return jobs


@dataclass(frozen=True)
class Tables:
    """The rows behind a picture, and those of other CSVs by the ends of their names, ``seeds`` and ``summary``."""

    rows: list[TableRow]
    others: dict[str, list[TableRow]] = field(default_factory=dict)


def figure_tables(experiment: Experiment, profile: Profile, outcomes: Sequence[Outcome]) -> Tables:
    """The tables, from the outcomes of ``figure_jobs``."""
    runs = experiment.configs(profile)
    outcomes = with_selections([Job(config) for _, _, config in runs], outcomes)
    found: dict[tuple[str, float | None], Curve] = {}
    for (scheme, value, config), outcome in zip(runs, outcomes, strict=True):
        found.setdefault((scheme, value), Curve(scheme, value, config, [])).runs.append(outcome)
    kind, curves, others = kind_of(experiment), list(found.values()), {}
    if kind.per_seed is not None:
        others["seeds"] = kind.per_seed(experiment, curves)
        if kind.summary is not None:
            others["summary"] = kind.summary(experiment, others["seeds"])
    return Tables(kind.rows(experiment, curves), others)
