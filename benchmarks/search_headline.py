"""The search behind the GPU headline: rule, rate, decay and D_min, on a seed that no figure uses, in a third of its rounds.

    python -m benchmarks.search_headline docs/results/search_headline_full.csv     # after fedtwin data fetch cifar-10

Trials with the same weight decay share the GPU. One that is in the CSV already is not run again, so that trials can be added.
"""

import csv
import sys
from pathlib import Path
from typing import NamedTuple, get_type_hints

from fedtwin.config import Config, replace_settings
from fedtwin.experiments.batches.gpu import simulate_on_gpu
from fedtwin.experiments.specs.figure import load_experiment
from fedtwin.sim import Result

SEED, ROUNDS = 100, 8000


class Trial(NamedTuple):
    """One training by CU-UCB."""

    partition: str
    aggregation: str
    mixing: float
    learning_rate: float
    min_mean_samples: float
    weight_decay: float = 5e-4


TRIALS = (
    Trial("iid", "fedasync", 0.6, 0.05, 1.0),
    Trial("iid", "change", 2 / 15, 0.05, 1.0),
    Trial("iid", "change", 2 / 15, 0.1, 1.0),
    Trial("iid", "change", 2 / 15, 0.2, 1.0),
    Trial("iid", "change", 4 / 15, 0.05, 1.0),
    Trial("iid", "change", 4 / 15, 0.1, 1.0),
    Trial("dirichlet", "fedasync", 0.6, 0.05, 1.0),
    Trial("dirichlet", "change", 2 / 15, 0.1, 1.0),
    Trial("dirichlet", "change", 4 / 15, 0.05, 1.0),
    Trial("iid", "fedasync", 0.6, 0.05, 2.5),
    Trial("iid", "change", 4 / 15, 0.05, 2.5),
    Trial("iid", "change", 0.4, 0.05, 2.5),
    Trial("dirichlet", "fedasync", 0.6, 0.05, 2.5),
    Trial("dirichlet", "change", 4 / 15, 0.05, 2.5),
    Trial("iid", "change", 4 / 15, 0.05, 2.5, 1e-3),
    Trial("iid", "change", 4 / 15, 0.05, 2.5, 2e-3),
)
LEARNING = ("aggregation", "mixing", "learning_rate", "weight_decay")
COLUMNS = (*Trial._fields, "test_accuracy", "plain_test_accuracy", "last_fifth_of_rounds", "virtual_time_s")


def config_of(trial: Trial) -> Config:
    """The headline's own settings, as its full profile has them, but for what is searched."""
    scheme = "CU-UCB on an even mix" if trial.partition == "iid" else "CU-UCB on Dirichlet(0.5)"
    headline = {name: config for name, _, config in load_experiment("headline").configs("full")}
    searched = {f"learning.{name}": getattr(trial, name) for name in LEARNING}
    shorter = {"run.rounds": ROUNDS, "run.seed": SEED, "learning.evaluate_every_s": 30.0}
    return replace_settings(headline[scheme], {**shorter, **searched, "objective.min_mean_samples": trial.min_mean_samples})


def known(path: Path) -> set[Trial]:
    if not path.exists():
        return set()
    kinds = get_type_hints(Trial)
    with path.open(newline="") as file:
        return {Trial(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in csv.DictReader(file)}


def row_of(trial: Trial, result: Result) -> list[object]:
    last = result.evaluations[-1]
    late = [one.test_accuracy for one in result.evaluations if one.round > 0.8 * ROUNDS and one.test_accuracy is not None]
    found = (last.test_accuracy, last.plain_test_metric, sum(late) / len(late))
    return [*trial, *(f"{value:.4f}" for value in found), f"{last.clock_s:.1f}"]


def main() -> None:
    path = Path(sys.argv[1])
    trials = [trial for trial in TRIALS if trial not in known(path)]
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    for place, result in simulate_on_gpu([config_of(trial) for trial in trials]):
        if isinstance(result, BaseException):
            print(*trials[place], f"fails: {result}", sep="\t", flush=True)
            continue
        with path.open("a", newline="") as file:
            csv.writer(file).writerow(row_of(trials[place], result))
        print(*row_of(trials[place], result), sep="\t", flush=True)


if __name__ == "__main__":
    main()
