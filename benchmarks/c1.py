"""How well CU-UCB meets C1 at 10,000 rounds, over 20 fleets: the least and the mean share of D_min that the device that
trained least got. Behind the C1 paragraph of docs/results.md.

    python -m benchmarks.c1
"""

from fedtwin.config import load_config
from fedtwin.experiments.batches.batch import Job, run_batch

FLEETS = 20
CASES = [(15, 0.5), (15, 1.0), (15, 1.5), (15, 2.0), (15, 2.5), (15, 2.7), (25, 2.7)]


def main() -> None:
    for channels, d_min in CASES:
        settings = {"objective.min_mean_samples": d_min, "run.rounds": 10_000, "fleet.channels": channels}
        jobs = [Job(load_config(overrides={**settings, "run.seed": seed})) for seed in range(FLEETS)]
        shares = [outcome.summary["least_mean_samples"] / d_min for outcome in run_batch(jobs)]
        print(f"channels {channels}  D_min {d_min}  worst {min(shares):.4f}  mean {sum(shares) / FLEETS:.4f}", flush=True)


if __name__ == "__main__":
    main()
