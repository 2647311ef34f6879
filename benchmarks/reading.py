"""How quickly a run of a million rounds and 5,000 devices gives its twin at any moment, beside a replay in the same run.

python -m benchmarks.reading          # about two minutes
python -m benchmarks.reading --quick  # a hundredth of the rounds
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from fedtwin import Run, open_run
from fedtwin.twin import Twin, new_twin
from fedtwin.twin.update import Offer, accepted, declined, observed, uploaded

MOMENTS, TENTH = 30, 10
COLUMNS = (
    *("device", "round", "clock_s", "arrived", "declined", "gain", "cpu_hz", "compute_s", "cost"),
    *("upload_s", "compute_j", "upload_j"),
)
Found = TypeVar("Found")


def main(rounds: int, devices: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        settings = [f"fleet.devices={devices}", f"fleet.channels={devices // 10}", "objective.min_mean_samples=0.01"]
        options = [option for setting in [*settings, "run.engine=compiled"] for option in ("--set", setting)]
        command = [sys.executable, "-m", "fedtwin", "run", "--rounds", str(rounds), *options, "--out", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        run, opened_s = timed(lambda: open_run(folder))
        _, first_s = timed(run.twin)
        chance, end_s = random.Random(0), run.summary["virtual_time_s"]
        by_round, by_second = [], []
        for _ in range(MOMENTS):
            round_, second = chance.randint(1, rounds), chance.uniform(0.0, end_s)
            by_round.append(timed(partial(run.twin, round=round_))[1])
            by_second.append(timed(partial(run.twin, seconds=second))[1])
        replayed, replay_s = timed(lambda: replay(run, rounds // TENTH))
        assert replayed == run.twin(round=rounds // TENTH), "the index and the replay differ"
    print(f"{rounds:,} rounds, {devices:,} devices, {MOMENTS} moments by chance")
    print(f"open_run                          {opened_s:8.2f} s")
    print(f"the first twin (builds the index) {first_s:8.2f} s")
    for name, times in (("twin(round=…)  ", by_round), ("twin(seconds=…)", by_second)):
        print(f"{name}                   {1e3 * median(times):8.1f} ms (at worst {1e3 * max(times):.1f} ms)")
    print(f"a replay of the first tenth       {replay_s:8.1f} s")


def timed(work: Callable[[], Found]) -> tuple[Found, float]:
    begun = time.perf_counter()
    found = work()
    return found, time.perf_counter() - begun


def replay(run: Run, until: int) -> Twin:
    """The coordinator's own updates, one after the other, from the rows of an asynchronous run, until a round is opened."""
    samples: list[Any] = run.devices["samples"].to_pylist()
    twin = new_twin(samples, run.config.objective.min_mean_samples)
    computing: dict[int, float] = {}
    opened = 0
    for table in (run.start, run.rounds):
        for device, round_, at_s, arrived, declined_, *offered in zip(
            *(table[name].to_pylist() for name in COLUMNS), strict=True
        ):
            if round_ > opened:
                opened = round_
                if arrived is not None:
                    twin = uploaded(twin, arrived, computing.pop(arrived), at_s, None)
            if round_ == until:
                return twin
            if not declined_:
                gain, cpu_hz, compute_s, cost, upload_s, compute_j, upload_j = offered
                offer = Offer(gain, cpu_hz, compute_s, cost, compute_s + upload_s, compute_j + upload_j)
                twin = accepted(twin, device, round_, offer, at_s, counted=round_ > 0)
                twin = observed(twin, device, offer.cost, offer.time_s, offer.energy_j) if round_ > 0 else twin
                computing[device] = offer.compute_s
            elif round_ > 0:
                twin = declined(twin, device, offered[0], offered[1], at_s)
    return twin


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rounds")
    main(10_000 if parser.parse_args().quick else 1_000_000, 5_000)
