"""How often a what-if of live boards holds.

python -m benchmarks.whatif_live --make FOLDER          # four runs of four boards on this machine, a minute; then as below
python -m benchmarks.whatif_live RUN… --ahead 30 100    # runs that are there

Every run, which has ended, is forked again and again on its way, and what then happened is held against the 90 % interval, with
what boards measured against the model taken into account, and without. Forks of one run are not independent of each other.
"""

import argparse
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np

import fedtwin
import fedtwin.live
from fedtwin.whatif.answer import Interval, Numbers
from fedtwin.whatif.heard import answers_of

NUMBERS = ("mean_cost", "mean_time_s", "mean_energy_j")
BOARDS = {"small": 150, "middle": 300, "large": 600, "other": 300}
POLICIES = ("cu-ucb", "random", "queue-only", "cu-ucb")
SETTINGS = {"fleet.devices": 4, "fleet.channels": 2, "fleet.samples_max": 1000, "run.rounds": 500, "learning.model": "mlp"}
FORKS = 40
EARLIEST = 40


def happened(run: fedtwin.Run, first: int, rounds: int) -> dict[str, float]:
    """Over the updates of these rounds."""
    rows = answers_of(run)
    rows = rows.only(~rows.declined & (rows.round >= first) & (rows.round < first + rounds))
    return {"mean_cost": rows.cost.mean(), "mean_time_s": rows.time_s.mean(), "mean_energy_j": rows.energy_j.mean()}


def holds(said: Numbers, came_to: dict[str, float]) -> list[bool]:
    intervals: list[Interval] = [getattr(said, name) for name in NUMBERS]
    return [
        one.low is not None and one.high is not None and one.low <= value <= one.high
        for one, value in zip(intervals, came_to.values(), strict=True)
    ]


def width(said: Numbers) -> float:
    cost = said.mean_cost
    return (cost.high - cost.low) / cost.mean if cost.mean and cost.high is not None and cost.low is not None else np.nan


def row(called: str, folders: list[Path], ahead: int, *, measured: bool) -> str:
    inside, widths = [], []
    with nullcontext() if measured else patch("fedtwin.whatif.asking.measured_by", return_value=None):
        for folder in folders:
            run = fedtwin.open_run(folder)
            last = int(run.rounds["round"].to_numpy().max())
            for at in np.unique(np.linspace(EARLIEST, last - ahead, FORKS, dtype=int)).tolist():
                try:
                    said = fedtwin.whatif(run, at=at, rounds=ahead, worlds=99, look_back=False).as_is
                except fedtwin.FedtwinError:  # nobody was asked in just that round
                    continue
                inside.append(holds(said, happened(run, at, ahead)))
                widths.append(width(said))
    shares = " | ".join(f"{100 * share:.0f} %" for share in np.mean(inside, axis=0))
    return f"| {called} | {ahead} | {len(inside)} | {shares} | {100 * np.mean(widths):.1f} % |"


def made(folder: Path) -> list[Path]:
    """Boards that really train, an ``mlp`` on samples of their own, and measure what that and their link take."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    centres = random.normal(size=(10, 64))

    def samples(count: int) -> dict[str, np.typing.NDArray[np.generic]]:
        y = random.integers(10, size=count)
        return {"x_train": (centres[y] + 2.0 * random.normal(size=(count, 64))).astype(np.float32), "y_train": y}

    test = samples(500)
    np.savez(folder / "test.npz", **test, x_test=test["x_train"], y_test=test["y_train"])  # type: ignore[arg-type]
    for name, count in BOARDS.items():
        np.savez(folder / f"{name}.npz", **samples(count))  # type: ignore[arg-type]
    runs = []
    for number, policy in enumerate(POLICIES):
        settings = {"policy.name": policy, "learning.dataset": str(folder / "test.npz"), "run.seed": number, **SETTINGS}
        with fedtwin.live.LocalFleet(folder / str(number)) as fleet:
            fleet.edge("--no-evaluator", config=fedtwin.load_config(overrides=settings))
            for name in BOARDS:
                fleet.device(name, fleet.url(), "--data", folder / f"{name}.npz")
            fleet.processes["edge"].wait()
            runs.append(fleet.run)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--make", type=Path)
    parser.add_argument("--ahead", nargs="+", type=int, default=[30, 100])
    given = parser.parse_args()
    runs = [*given.runs, *(made(given.make) if given.make is not None else [])]
    print("| worlds | rounds ahead | forks | mean_cost | mean_time_s | mean_energy_j | width of the cost's interval |")
    print("|---|---|---|---|---|---|---|")
    for ahead in given.ahead:
        print(row("by the model alone", runs, ahead, measured=False), flush=True)
        print(row("as measured against the model", runs, ahead, measured=True), flush=True)


if __name__ == "__main__":
    main()
