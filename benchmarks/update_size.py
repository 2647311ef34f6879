"""What the size of the update is worth: cost, time and energy per update, and accuracy at equal updates, time and energy.

python -m benchmarks.update_size docs/results/update_size.csv          # half an hour on two cores; one line per run
python -m benchmarks.update_size docs/results/update_size.csv --table  # the tables of docs/results.md, from that file
python -m benchmarks.update_size /tmp/some.csv --quick                 # digits, one seed, a minute

Fashion-MNIST (fedtwin data fetch fashion-mnist), small-cnn, every run as many virtual seconds long as the others.
"""

import argparse
import csv
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtwin.config import replace_settings
from fedtwin.learning.charges import charged
from fedtwin.learning.evaluation import Evaluation
from fedtwin.sim import simulate
from fedtwin.sim.given import configured

VARIANTS: dict[str, dict[str, Any]] = {
    "none": {},
    "float16": {"learning.compress": "float16"},
    "int8": {"learning.compress": "int8"},
    "top-k 10 %": {"learning.compress": "top-k", "learning.top_k": 0.1},
    "top-k 10 %, no feedback": {"learning.compress": "top-k", "learning.top_k": 0.1, "learning.error_feedback": False},
    "top-k 1 %": {"learning.compress": "top-k", "learning.top_k": 0.01},
    "top-k 1 %, no feedback": {"learning.compress": "top-k", "learning.error_feedback": False},
}
MIXES: dict[str, dict[str, Any]] = {
    "even": {},
    "Dirichlet(0.5)": {"learning.partition": "dirichlet", "learning.dirichlet_gamma": 0.5},
}
SETTINGS: dict[str, Any] = {
    "radio.update_bits": "model",
    "radio.bandwidth_hz": 187e3,  # the whole model, 1.5 Mbit, then takes as long as the paper's 8 Mbit at 1 MHz
    "learning.dataset": "fashion-mnist",
    "learning.model": "small-cnn",
    "learning.executor": "serial",
    "learning.evaluate_every_s": 1.0,  # accuracies are read between two evaluations
    "learning.average": "ema",
}
QUICK = {"learning.dataset": "digits", "learning.model": "mlp", "radio.bandwidth_hz": 36e3}
UNTIL_S, MOST_ROUNDS = 24.0, 20_000


class Job(NamedTuple):
    """One run."""

    mix: str
    variant: str
    seed: int
    quick: bool


class Line(NamedTuple):
    """What is kept of it: means over its updates, and its evaluations."""

    mix: str
    variant: str
    seed: int
    update_bits: float
    updates: int
    cost: float
    time_s: float
    energy_j: float
    spent_j: float
    accuracy_at_updates: float
    accuracy_at_time: float
    accuracy_at_energy: float


class Done(NamedTuple):
    """A run before it is compared with the others of its seed."""

    job: Job
    update_bits: float
    summary: Any
    evaluations: list[Evaluation]


def played(job: Job) -> Done:
    """The run, of as many rounds as fit into the time: learning does not move the schedule, so that is known before."""
    over = {**SETTINGS, **(QUICK if job.quick else {}), **MIXES[job.mix], **VARIANTS[job.variant], "run.seed": job.seed}
    config = charged(configured({**over, "run.rounds": MOST_ROUNDS}))
    schedule = simulate(config.model_copy(update={"learning": None}))
    rounds = int(np.searchsorted(np.asarray(schedule.rounds["clock_s"]), UNTIL_S)) + 1
    result = simulate(replace_settings(config, {"run.rounds": rounds}), records=False)
    return Done(job, float(config.radio.update_bits), result.summary, result.evaluations)


def lines(found: Sequence[Done]) -> list[Line]:
    """Accuracy of the model that is served where all runs of a mix and seed have come: the fewest updates, the least energy."""
    made = []
    for one in found:
        together = [other for other in found if (other.job.mix, other.job.seed) == (one.job.mix, one.job.seed)]
        least_j = min(other.evaluations[-1].energy_j for other in together)
        fewest = min(other.evaluations[-1].round for other in together)
        accuracy = [evaluation.test_accuracy or 0.0 for evaluation in one.evaluations]
        at = [
            float(np.interp(end, [getattr(evaluation, axis) for evaluation in one.evaluations], accuracy))
            for axis, end in (("round", fewest), ("clock_s", UNTIL_S), ("energy_j", least_j))
        ]
        summary = one.summary
        means = summary.mean_cost, summary.mean_time_s, summary.mean_energy_j
        spent_j = one.evaluations[-1].energy_j
        made.append(Line(*one.job[:3], one.update_bits, one.evaluations[-1].round, *means, spent_j, *at))
    return made


def table(rows: Sequence[Line], mix: str) -> str:
    """Means over the seeds; accuracies with the range of their differences from ``none``, in pairs by seed."""
    told = [
        "| | bits | cost | time, s | energy, J | updates | at equal updates, % | at equal time, % | at equal energy, % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    of = {(row.variant, row.seed): row for row in rows if row.mix == mix}
    seeds = sorted({seed for _, seed in of})
    for variant in dict.fromkeys(name for name, _ in of):
        runs, whole = [of[variant, seed] for seed in seeds], [of["none", seed] for seed in seeds]
        cells = [f"{runs[0].update_bits:,.0f}"]
        cells += [f"{np.mean([getattr(run, name) for run in runs]):.3f}" for name in ("cost", "time_s", "energy_j")]
        cells.append(f"{np.mean([run.updates for run in runs]):,.0f}")
        for name in ("accuracy_at_updates", "accuracy_at_time", "accuracy_at_energy"):
            values = 100.0 * np.array([getattr(run, name) for run in runs])
            apart = values - 100.0 * np.array([getattr(run, name) for run in whole])
            differs = f" ({apart.min():+.1f} … {apart.max():+.1f})".replace("-", "−")
            cells.append(f"{values.mean():.1f}{'' if variant == 'none' else differs}")
        told.append(f"| {variant} | {' | '.join(cells)} |")
    return "\n".join(told)


def write(path: Path, made: Sequence[Line]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Line._fields)
        writer.writerows([f"{value:.6g}" if isinstance(value, float) else value for value in row] for row in made)


def read(path: Path) -> list[Line]:
    with path.open(newline="", encoding="utf-8") as file:
        kinds = Line.__annotations__
        return [Line(**{name: kinds[name](value) for name, value in row.items()}) for row in csv.DictReader(file)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", action="store_true", help="only print the tables of a file that is there")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mixes", nargs="*", default=list(MIXES), choices=list(MIXES))
    given = parser.parse_args()
    if not given.table:
        seeds = range(1 if given.quick else given.seeds)
        jobs = [Job(mix, variant, seed, given.quick) for seed in seeds for mix in given.mixes for variant in VARIANTS]
        done: list[Done] = []
        with ProcessPoolExecutor(given.workers) as pool:
            for one in pool.map(played, jobs):
                done.append(one)
                if len(done) % len(VARIANTS) == 0:  # all of a mix and seed
                    write(given.out, lines(done))
    rows = read(given.out)
    for mix in dict.fromkeys(row.mix for row in rows):
        print(f"{mix}, {len({row.seed for row in rows})} seeds\n\n{table(rows, mix)}\n")


if __name__ == "__main__":
    main()
