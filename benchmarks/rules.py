"""Aggregation rules on the same runs: what each takes to an accuracy, where it ends, and what memory it needs.

Of every rule at most six settings are tried on a seed that the table does not use, in a third of the rounds; the one with the
largest mean accuracy over that time is run on the seeds of the table. All other settings are the same for all: Fashion-MNIST,
``mlp``, CU-UCB, λ_e = 0.1; synchronous rules wait for the 15 devices of a round. The journal beside the CSV holds the
finished runs: the same command, started again, goes on.

    python -m benchmarks.rules docs/results/rules.csv dirichlet          # or even, or both; each some 3 minutes on two cores
    python -m benchmarks.rules docs/results/rules.csv                    # the tables again, from the CSV files alone
"""

import csv
import itertools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtwin.config import Config, load_config
from fedtwin.experiments.analysis.learning_curves import Points, mean_between, summary_rows
from fedtwin.experiments.batches.batch import Job, Outcome, run_batch
from fedtwin.learning.aggregation import Upload, aggregation_of

Settings = dict[str, Any]

SEARCH_SEED, SEEDS, ROUNDS = 1000, (1, 2, 3, 4, 5), 1500
COMMON: Settings = {
    "learning.dataset": "fashion-mnist",
    "learning.model": "mlp",
    "learning.evaluate_every_s": 3.0,
    "learning.average": "ema",
    "objective.energy_weight": 0.1,
}
PARTITIONS: dict[str, Settings] = {
    "dirichlet": {"learning.partition": "dirichlet", "learning.dirichlet_gamma": 0.3},
    "even": {},
}
LEVELS = {"dirichlet": 0.75, "even": 0.8}
RATE, MIXING, SIZE, OWN = ("learning." + name for name in ("learning_rate", "mixing", "buffer_size", "aggregation_settings"))
RATES = (0.1, 0.2)
SYNC = {"run.mode": "sync"}
EVALUATION = ("partition", "rule", "seed", "clock_s", "energy_j", "test_accuracy", "plain_test_accuracy")
SEARCHED = ("partition", "rule", "settings", "mean_accuracy", "chosen")
DEVICES, VALUES = (30, 1000), 55_050


def tried() -> dict[str, list[Settings]]:
    """The settings that are searched, six of every rule."""

    def with_rates(*others: Settings) -> list[Settings]:
        return [{RATE: rate, **other} for rate, other in itertools.product(RATES, others)]

    return {
        "fedasync": [{RATE: rate, MIXING: value} for rate in (0.1, 0.2, 0.3) for value in (0.6, 0.9)],
        "change": with_rates(*({MIXING: value} for value in (0.2, 0.5, 1.0))),
        "fedbuff": with_rates(*({SIZE: size, MIXING: 1.0} for size in (3, 5, 10))),
        "ca2fl": [{RATE: 0.1, SIZE: size, MIXING: value} for size in (5, 10) for value in (0.1, 0.25, 0.5)],
        "fadas": with_rates(*({SIZE: 5, f"{OWN}.rate": value} for value in (0.001, 0.003, 0.01))),
        "fedavg": [{RATE: value, **SYNC} for value in (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)],
        "fedavgm": with_rates(*({f"{OWN}.momentum": value, **SYNC} for value in (0.5, 0.7, 0.9))),
    }


def config_of(rule: str, partition: str, settings: Settings, seed: int, rounds: int) -> Config:
    own = {"learning.aggregation": rule, "run.seed": seed, "run.rounds": rounds}
    return load_config(overrides={**COMMON, **PARTITIONS[partition], **settings, **own})


def said(settings: Settings) -> str:
    """The settings of a rule in a few words."""
    return ", ".join(f"{key.rpartition('.')[2]} {value:g}" for key, value in settings.items() if key not in SYNC)


def search(partition: str, journal: Path) -> list[dict[str, Any]]:
    """Every setting of every rule, with its mean accuracy; one that fails has none."""
    cases = [(rule, one) for rule, settings in tried().items() for one in settings]
    jobs = [Job(config_of(rule, partition, one, SEARCH_SEED, ROUNDS // 3)) for rule, one in cases]
    outcomes = run_batch(jobs, journal=journal, keep_failures=True, progress=_tell)
    rows: list[dict[str, Any]] = [
        dict(zip(SEARCHED, (partition, rule, said(one), mean_accuracy(outcome), False), strict=True)) | {"given": one}
        for (rule, one), outcome in zip(cases, outcomes, strict=True)
    ]
    for rule in tried():
        max((row for row in rows if row["rule"] == rule), key=lambda row: row["mean_accuracy"])["chosen"] = True
    return rows


def mean_accuracy(outcome: Outcome) -> float:
    """Over the virtual time of the run, of the model that is served; the schedule is the same for all settings of a rule."""
    if outcome.failed is not None or not outcome.evaluations:
        return 0.0
    points = Points(*np.array([(e.clock_s, e.test_accuracy) for e in outcome.evaluations], np.float64).T)
    return round(mean_between(points, 0.0, float(points.x[-1])), 4)


def table_runs(chosen: Iterable[dict[str, Any]], journal: Path) -> list[dict[str, Any]]:
    """A row per evaluation of every run of the table."""
    cases = [(row["partition"], row["rule"], row["given"], seed) for row in chosen for seed in SEEDS]
    jobs = [Job(config_of(rule, partition, given, seed, ROUNDS)) for partition, rule, given, seed in cases]
    rows = []
    for (partition, rule, _, seed), outcome in zip(cases, run_batch(jobs, journal=journal, progress=_tell), strict=True):
        for one in outcome.evaluations:
            found = (one.clock_s, one.energy_j, one.test_accuracy, one.plain_test_metric)
            rows.append(dict(zip(EVALUATION, (partition, rule, seed, *found), strict=True)))
    return rows


def memory_per_device(rule: str, settings: Settings, devices: int) -> float:
    """The largest state of the rule, in bytes for every device, when all have uploaded once and the gathering is full."""
    config = load_config(overrides={**settings, "learning.aggregation": rule, "learning.average": "none"})
    asked, model = aggregation_of(config), np.ones(VALUES, np.float32)
    state, most = asked.init(model), 0
    for number in range(devices + 20):
        state, model = asked.apply(state, model, Upload(0.9 * model, model, 0, 80.0, number % devices, number))
        most = max(most, asked.hold(state, model).size_bytes) if number >= devices - 1 else most
        if config.run.mode == "sync" and number % 15 == 14:
            state, model = asked.close_round(state, model)
    return most / devices


def show(searched: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> None:
    """A table of every partition, in Markdown; FedAsync is the first rule, and differences are from it, in pairs by seed."""
    for partition in dict.fromkeys(row["partition"] for row in runs):
        level, rows = LEVELS[partition], [row for row in runs if row["partition"] == partition]
        curves = [
            {**row, "curve": row["rule"], "axis": axis, "x": row[x]}
            for axis, x in (("time", "clock_s"), ("energy", "energy_j"))
            for row in rows
        ]
        found = {(r["axis"], r["model"], r["metric"], r["curve"]): r for r in summary_rows(curves, [level])}
        end_s = found["time", "averaged", "end", "fedasync"]["x_end"]
        print(f"\n{partition}; the end is the mean over the last fifth of {end_s:.0f} s\n")
        print(
            f"| rule | settings | s to {level:.0%} | J to {level:.0%} | end, % | above fedasync | plain model's end, % | kB |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for row in (one for one in searched if one["partition"] == partition and one["chosen"] in (True, "True")):
            rule = row["rule"]
            to = [_reached(found[axis, "averaged", "to", rule]) for axis in ("time", "energy")]
            end, plain = (found["time", model, "end", rule] for model in ("averaged", "plain"))
            above = " … ".join(f"{100 * end[key]:.1f}" for key in ("above_first_low", "above_first_high"))
            given = next(one for one in tried()[rule] if said(one) == row["settings"])
            kilobytes = " and ".join(f"{memory_per_device(rule, given, devices) / 1000:.0f}" for devices in DEVICES)
            cells = [rule, row["settings"], *to, f"{100 * end['mean']:.1f}", above, f"{100 * plain['mean']:.1f}", kilobytes]
            print(f"| {' | '.join(cells)} |", flush=True)


def _reached(row: dict[str, Any]) -> str:
    if not row["reached"]:
        return "never"
    return f"{row['mean']:.0f}" + (f" ({row['reached']} of {row['seeds']})" if row["reached"] < row["seeds"] else "")


def _tell(finished: int) -> None:
    print("." * finished, end="", file=sys.stderr, flush=True)


def _add(path: Path, columns: Sequence[str], rows: Iterable[dict[str, Any]], partition: str) -> None:
    """The rows of a partition take the place of those that were there."""
    others = [row for row in _read(path) if row["partition"] != partition] if path.exists() else []
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*others, *rows])


def _read(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main() -> None:
    path = Path(sys.argv[1])
    searched_path, journal = path.with_name(f"{path.stem}_search.csv"), path.with_suffix(".journal")
    path.parent.mkdir(parents=True, exist_ok=True)
    for partition in PARTITIONS if sys.argv[2:] == ["both"] else sys.argv[2:]:
        searched = search(partition, journal)
        _add(searched_path, SEARCHED, searched, partition)
        _add(path, EVALUATION, table_runs([row for row in searched if row["chosen"]], journal), partition)
    show(_read(searched_path), _read(path))


if __name__ == "__main__":
    main()
