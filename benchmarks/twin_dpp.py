"""What the twin is worth: twin-dpp between CU-UCB, which does not look at it, and the genie, who knows the truth.

python -m benchmarks.twin_dpp          # about ten minutes on two cores; writes docs/results/twin_dpp.csv, .png and .svg
python -m benchmarks.twin_dpp --quick  # 3 fleets of 30 devices, nothing is written
"""

import argparse
import csv
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from fedtwin.sim import simulate

OUT = Path("docs/results")
ROUNDS, V = 10_000, 1e5
FLEETS = {30: 20, 300: 20, 3000: 5}
SCHEMES = (
    ("CU-UCB", "cu-ucb", "last-heard"),
    ("As-Q-only", "queue-only", "last-heard"),
    ("twin-dpp, mean", "twin-dpp", "mean"),
    ("twin-dpp, last-heard", "twin-dpp", "last-heard"),
    ("twin-dpp, current", "twin-dpp", "current"),
    ("genie", "genie", "last-heard"),
)


class Job(NamedTuple):
    """One run."""

    devices: int
    seed: int
    scheme: str
    policy: str
    gain: str


class Line(NamedTuple):
    """A scheme in fleets of one size; intervals are 95 % over fleets, the gap is paired."""

    devices: int
    scheme: str
    fleets: int
    cost: float
    cost_interval: float
    gap_closed: float
    gap_closed_interval: float
    c1_met_mean: float
    c1_met_worst: float
    time_s: float
    energy_j: float


def played(job: Job) -> tuple[float, float, float, float]:
    """Mean cost, what the device that trained least got of D_min, mean time and energy."""
    settings = {
        "run.rounds": ROUNDS,
        "run.seed": job.seed,
        "fleet.devices": job.devices,
        "fleet.channels": job.devices // 2,
        "objective.min_mean_samples": 30 / job.devices,
        "policy.name": job.policy,
        "policy.v": V,
        "twin.gain": job.gain,
        "run.engine": "compiled",
    }
    summary = simulate(settings, records=False).summary
    assert summary.mean_cost is not None and summary.mean_time_s is not None and summary.mean_energy_j is not None
    share = summary.least_mean_samples / (30 / job.devices)
    return summary.mean_cost, share, summary.mean_time_s, summary.mean_energy_j


def lines(fleets: dict[int, int], workers: int) -> list[Line]:
    jobs = [Job(n, seed, *scheme) for n, seeds in fleets.items() for seed in range(seeds) for scheme in SCHEMES]
    for scheme in SCHEMES:
        played(Job(30, 0, *scheme))  # compiled once, found on disk by the workers
    with ProcessPoolExecutor(workers) as pool:
        found = dict(zip(jobs, pool.map(played, jobs), strict=True))
    made = []
    for n, seeds in fleets.items():
        values = {name: np.array([found[Job(n, seed, name, *rest)] for seed in range(seeds)]) for name, *rest in SCHEMES}
        learned, truth = values["CU-UCB"][:, 0], values["genie"][:, 0]
        for name, *_ in SCHEMES:
            cost, share, time_s, energy_j = values[name].T
            closed = (learned - cost) / (learned - truth)
            made.append(
                Line(
                    *(n, name, seeds, cost.mean(), half_interval(cost), closed.mean(), half_interval(closed)),
                    *(share.mean(), share.min(), time_s.mean(), energy_j.mean()),
                )
            )
    return made


def half_interval(values: "np.ndarray") -> float:
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def draw(found: list[Line], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    sizes = sorted({line.devices for line in found})
    figure, axes = plt.subplots(figsize=(7.2, 4.0), layout="constrained")
    for k, (name, *_) in enumerate(SCHEMES):
        chosen = [line for line in found if line.scheme == name]
        places = np.arange(len(sizes)) + (k - 2.5) * 0.13
        axes.bar(
            places, [line.cost for line in chosen], 0.12, yerr=[line.cost_interval for line in chosen], label=name, capsize=2
        )
        for place, line in zip(places, chosen, strict=True):
            if name.startswith("twin"):
                label = f"{100 * line.gap_closed:.0f} %"
                axes.text(place, line.cost + line.cost_interval + 0.002, label, ha="center", fontsize=7, rotation=90)
    axes.set_xticks(range(len(sizes)), [f"N = {n:,}" for n in sizes])
    axes.set_ylim(0.35, 0.56)
    axes.set_ylabel("mean cost Ω (from 0.35)")
    axes.set_title("What the twin is worth; numbers: share of the gap CU-UCB → genie that is closed", fontsize=9)
    axes.legend(fontsize=8, ncols=3, loc="upper center", frameon=False)
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    found = lines({30: 3} if options.quick else FLEETS, options.workers)
    for line in found:
        print(
            f"N = {line.devices:5d}  {line.scheme:22s} {line.cost:.4f} ± {line.cost_interval:.4f}  "
            f"gap {100 * line.gap_closed:6.1f} ± {100 * line.gap_closed_interval:.1f} %  "
            f"C1 {100 * line.c1_met_mean:.0f} %, worst {100 * line.c1_met_worst:.0f} %"
        )
    if not options.quick:
        with (OUT / "twin_dpp.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(Line._fields)
            writer.writerows([[f"{value:.6g}" if isinstance(value, float) else value for value in line] for line in found])
        draw(found, OUT / "twin_dpp")


if __name__ == "__main__":
    main()
