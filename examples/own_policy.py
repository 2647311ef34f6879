"""A policy of your own: written, run beside the paper's, read in pandas, and drawn.

    python examples/own_policy.py            # writes own_policy.png and a folder of records
    python examples/own_policy.py --rounds 200 --out /tmp/here

Needs pandas and matplotlib: pip install 'fedtwin[examples]'.
"""

import argparse
from pathlib import Path

import matplotlib
import pandas as pd

import fedtwin
from fedtwin.policies import Knobs, View

matplotlib.use("Agg")


def score(view: View, knobs: Knobs) -> float:
    """The device of least score is selected: a long queue and cheap updates make it small."""
    return knobs.v * view.mean_cost - view.queue * view.samples


POLICY = fedtwin.Policy(score, power="optimal")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rounds", type=int, default=3000)
    options.add_argument("--out", type=Path, default=Path("out/own_policy"))
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)

    settings = {"run.rounds": given.rounds, "run.seed": 1}
    mine = fedtwin.simulate(settings, policy=POLICY, out=given.out / "mine")
    papers = fedtwin.simulate(settings, policy="CU-UCB")

    means = pd.DataFrame({"mine": mine.summary.as_dict(), "CU-UCB": papers.summary.as_dict()})
    print(means.loc[["mean_cost", "mean_time_s", "mean_energy_j", "least_mean_samples"]])

    chosen = pd.DataFrame(
        {name: run.to_pandas().groupby("device").size() for name, run in (("mine", mine), ("CU-UCB", papers))}
    )
    axes = chosen.fillna(0).plot.bar(figsize=(9, 3), ylabel="selections", title="Who is selected how often")
    axes.figure.savefig(given.out / "own_policy.png", bbox_inches="tight")
    print(f"The picture is {given.out / 'own_policy.png'}, the records are in {mine.folder}.")


if __name__ == "__main__":
    main()
