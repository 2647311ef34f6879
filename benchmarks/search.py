"""The search behind figures 6 to 9: learning rate, local epochs and horizon, the same for all schemes.

Every pair of rate and epochs is run with an asynchronous and the synchronous scheme, on a seed that no figure uses, and judged
by their mean accuracy at the same virtual times, each fifth of the shortest run: where the last fifths still gain, the
horizon is too short. A pair that diverges is reported as such. Prints one table and writes it as CSV.

    python -m benchmarks.search quick out/search.csv     # small-cnn on the CPU
    python -m benchmarks.search full out/search.csv      # ResNet-18 on a GPU
"""

import csv
import itertools
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.batch import Job, Outcome, run_batch
from fedtwin.experiments.specs.schemes import scheme_config

SCHEMES = ("CU-UCB", "Sy-fairness")
SEED = 1000
FIFTHS = 5


class Profile(NamedTuple):
    """What is searched: every pair of rate and epochs, on every dataset."""

    settings: dict[str, str]
    datasets: tuple[str, ...]
    rounds: int
    pairs: tuple[tuple[float, int], ...]


PROFILES = {
    "quick": Profile(
        {"learning.model": "small-cnn"},
        ("fashion-mnist", "cifar-10"),
        800,
        tuple(itertools.product((0.02, 0.05, 0.1), (1, 3))),
    ),
    "full": Profile(
        {"learning.model": "resnet18", "learning.executor": "cuda"},
        ("cifar-10",),
        5000,
        ((0.02, 1), (0.05, 1), (0.1, 1), (0.05, 3)),
    ),
}


def config_of(profile: Profile, dataset: str, scheme: str, rate: float, epochs: int) -> Config:
    own = {
        "learning.dataset": dataset,
        "learning.learning_rate": rate,
        "learning.local_epochs": epochs,
        "learning.average": "none",
    }
    common = {"run.rounds": profile.rounds, "run.seed": SEED, "objective.energy_weight": 0.1}
    return scheme_config(load_config(overrides={**profile.settings, **own, **common, "learning.evaluate_every_s": 4.0}), scheme)


def accuracy_at(outcome: Outcome, clock_s: float) -> float:
    times, accuracies = zip(*((e.clock_s, e.test_accuracy) for e in outcome.evaluations), strict=True)
    return float(np.interp(clock_s, times, accuracies))


def main() -> None:
    profile, path = PROFILES[sys.argv[1]], Path(sys.argv[2])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["dataset", "learning_rate", "local_epochs", "rounds", "virtual_time_s", *SCHEMES, "mean"])
        for dataset, (rate, epochs) in itertools.product(profile.datasets, profile.pairs):
            for row in rows_of(profile, dataset, rate, epochs):
                writer.writerow(row)
                print(*row, sep="\t", flush=True)
            file.flush()


def rows_of(profile: Profile, dataset: str, rate: float, epochs: int) -> list[list[object]]:
    """Accuracies of both schemes at each fifth of the time that both reached."""
    jobs = [Job(config_of(profile, dataset, scheme, rate, epochs)) for scheme in SCHEMES]
    try:
        outcomes = list(run_batch(jobs))
    except FedtwinError as error:
        return [[dataset, rate, epochs, profile.rounds, "", *(["diverges"] * len(SCHEMES)), str(error)]]
    common_s = min(outcome.evaluations[-1].clock_s for outcome in outcomes)
    rows: list[list[object]] = []
    for fifth in range(1, FIFTHS + 1):
        clock_s = common_s * fifth / FIFTHS
        found = [accuracy_at(outcome, clock_s) for outcome in outcomes]
        start = [dataset, rate, epochs, profile.rounds * fifth // FIFTHS, round(clock_s, 1)]
        rows.append([*start, *(round(a, 4) for a in found), round(sum(found) / len(found), 4)])
    return rows


if __name__ == "__main__":
    main()
