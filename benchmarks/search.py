"""The search behind figures 6 to 9: learning rate and local epochs, the same for all schemes.

Every pair is judged by the mean accuracy of an asynchronous and the synchronous scheme after the same virtual time, on a seed
that no figure uses. Prints one table and writes it as CSV.

    python -m benchmarks.search quick out/search.csv     # small-cnn on the CPU
    python -m benchmarks.search full out/search.csv      # ResNet-18 on a GPU
"""

import csv
import itertools
import sys
from pathlib import Path

import numpy as np

from fedtwin.config import Config, load_config
from fedtwin.experiments.batch import Job, Outcome, run_batch
from fedtwin.experiments.compare import scheme_config

SCHEMES = ("CU-UCB", "Sy-fairness")
RATES = (0.02, 0.05, 0.1)
EPOCHS = (1, 3)
SEED = 1000
PROFILES = {
    "quick": ({"learning.model": "small-cnn"}, ("fashion-mnist", "cifar-10"), 800),
    "full": ({"learning.model": "resnet18", "learning.executor": "cuda"}, ("cifar-10",), 800),
}


def config_of(profile: str, dataset: str, scheme: str, rate: float, epochs: int) -> Config:
    settings, _, rounds = PROFILES[profile]
    own = {"learning.dataset": dataset, "learning.learning_rate": rate, "learning.local_epochs": epochs}
    common = {"run.rounds": rounds, "run.seed": SEED, "objective.energy_weight": 0.1, "learning.evaluate_every_s": 4.0}
    return scheme_config(load_config(overrides={**settings, **own, **common}), scheme)


def accuracy_at(outcome: Outcome, clock_s: float) -> float:
    times, accuracies = zip(*((e.clock_s, e.test_accuracy) for e in outcome.evaluations), strict=True)
    return float(np.interp(clock_s, times, accuracies))


def main() -> None:
    profile, path = sys.argv[1], Path(sys.argv[2])
    cases = list(itertools.product(PROFILES[profile][1], RATES, EPOCHS))
    runs = [(*case, scheme) for case in cases for scheme in SCHEMES]
    jobs = [Job(config_of(profile, dataset, scheme, rate, epochs)) for dataset, rate, epochs, scheme in runs]
    outcomes = dict(zip(runs, run_batch(jobs), strict=True))
    common_s = min(outcome.evaluations[-1].clock_s for outcome in outcomes.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["dataset", "learning_rate", "local_epochs", "virtual_time_s", *SCHEMES, "mean"])
        for dataset, rate, epochs in cases:
            found = [accuracy_at(outcomes[dataset, rate, epochs, scheme], common_s) for scheme in SCHEMES]
            row = [dataset, rate, epochs, round(common_s, 2), *(round(a, 4) for a in found), round(sum(found) / 2, 4)]
            writer.writerow(row)
            print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
