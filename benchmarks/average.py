"""After how many rounds the averaged model is no worse than the model itself.

python -m benchmarks.average docs/results/average.csv            # both models at every evaluation of every run
python -m benchmarks.average docs/results/average.csv --table    # the table of docs/learning.md, from that file

With a constant rate a run that is cut after k rounds is the run of k rounds: one run tells of all shorter ones. Fashion-MNIST
is had by ``fedtwin data fetch fashion-mnist``.
"""

import argparse
import csv
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtwin.sim import simulate
from fedtwin.sim.given import configured

COMMON: dict[str, Any] = {"run.rounds": 4000, "learning.average": "ema", "learning.executor": "serial"}
MNIST = {"learning.dataset": "fashion-mnist", "learning.model": "mlp"}
MIXED = {"learning.partition": "dirichlet", "learning.dirichlet_gamma": 0.3}
CASES: dict[str, dict[str, Any]] = {
    "digits, even": {"learning.dataset": "digits"},
    "digits, Dirichlet(0.3)": {"learning.dataset": "digits", **MIXED},
    "digits, a rate of 0.1": {"learning.dataset": "digits", "learning.learning_rate": 0.1},
    "digits, change": {"learning.dataset": "digits", "learning.aggregation": "change", "learning.mixing": 0.5},
    "Fashion-MNIST, even": MNIST,
    "Fashion-MNIST, Dirichlet(0.3)": {**MNIST, **MIXED},
}
SEEDS = 4
BETWEEN = (0, 250, 500, 1000, 1500, 2000, 3000, 4001)


class Line(NamedTuple):
    """One evaluation."""

    case: str
    seed: int
    round: int
    averaged: float
    plain: float


def run(job: tuple[str, int]) -> list[Line]:
    case, seed = job
    settings = {**COMMON, **CASES[case], "run.seed": seed, "learning.evaluate_every_s": 2.0}
    found = simulate(configured(settings)).evaluations
    return [Line(case, seed, one.round, one.test_metric or 0.0, one.plain_test_metric or 0.0) for one in found]


def ahead(one: Line) -> float:
    return 100.0 * (one.averaged - one.plain)


def table(lines: list[Line]) -> str:
    """Points by which the average is ahead of the model, over the evaluations between so many rounds; mean ± standard error."""
    spans = list(pairwise(BETWEEN))
    rows = [f"| | {' | '.join(f'{low:,} to {high - 1:,}' for low, high in spans)} |", "|---" * (len(spans) + 1) + "|"]
    for case in CASES:
        cells = []
        for low, high in spans:
            by_seed = [
                np.mean([ahead(one) for one in lines if (one.case, one.seed) == (case, seed) and low <= one.round < high])
                for seed in range(SEEDS)
            ]
            cells.append(f"{np.mean(by_seed):+.1f} ± {np.std(by_seed, ddof=1) / np.sqrt(SEEDS):.1f}")
        rows.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(rows)


def read(path: Path) -> list[Line]:
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Line(row["case"], int(row["seed"]), int(row["round"]), float(row["averaged"]), float(row["plain"]))
            for row in csv.DictReader(file)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if not given.table:
        with ProcessPoolExecutor(2) as pool:
            lines = [
                line for found in pool.map(run, [(case, seed) for case in CASES for seed in range(SEEDS)]) for line in found
            ]
        with given.file.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([Line._fields, *lines])
    print(table(read(given.file)))


if __name__ == "__main__":
    main()
