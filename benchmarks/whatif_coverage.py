"""How often what then happened lies in the 90 % interval of a what-if: ``python -m benchmarks.whatif_coverage``.

Every fork is of a run of its own, with a seed of its own, at a round of its own: the run is played to its end, forked on the
way with what was known there, and its own future is held against the interval. Prints a table as docs/whatif.md has it.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedtwin
from fedtwin.whatif.answer import NUMBERS, Interval
from fedtwin.whatif.playing import EngineName

AHEAD = (100, 300, 1000)
EARLIEST, LATEST = 5, 1500
FIRST_SEED = 100_000


class Case(NamedTuple):
    """Runs of one kind."""

    called: str
    settings: dict[str, Any]


CASES = {
    "cu-ucb": Case("CU-UCB, as in the paper", {}),
    "queue-only": Case("As-Q-only", {"policy.name": "As-Q-only"}),
    "fairness": Case("As-fairness, full power", {"policy.name": "As-fairness"}),
    "random": Case("Random, full power", {"policy.name": "Random"}),
    "twin-dpp": Case("twin-dpp", {"policy.name": "twin-dpp"}),
    "sync": Case("Sy-fairness, synchronous", {"policy.name": "Sy-fairness"}),
    "few": Case("CU-UCB, 8 devices, 3 channels", {"fleet.devices": 8, "fleet.channels": 3}),
    "jakes": Case("CU-UCB, links with memory (Jakes, 10 Hz)", {"world.channel": "jakes"}),
    "slow": Case("the same at 0.1 Hz", {"world.channel": "jakes", "world.channel_settings.doppler_hz": 0.1}),
}


class Forked(NamedTuple):
    """One fork: whether each number came to lie inside, and the width of the cost's interval as a part of its mean."""

    inside: tuple[bool, ...]
    width: float
    ahead: int
    at: int


def fork(
    case: Case,
    number: int,
    worlds: int,
    engine: EngineName = "compiled",
    latest: int = LATEST,
    ahead: tuple[int, ...] = AHEAD,
) -> Forked:
    """The number is the seed of the run, and chooses the round and how far to look ahead."""
    chance = random.Random(number)
    at, rounds = chance.randint(EARLIEST, latest), chance.choice(ahead)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        until = at + rounds - 1 if case is not CASES["sync"] else 15 * at + rounds
        settings = {"run.rounds": until, "run.seed": FIRST_SEED + number, "run.engine": engine}
        fedtwin.simulate({**case.settings, **settings}, out=folder)
        run = fedtwin.open_run(folder)
        answer = fedtwin.whatif(run, at=at, rounds=rounds, worlds=worlds, seed=number, look_back=False, engine=engine)
        truth = fedtwin.whatif(run, at=at, rounds=rounds, true_world=True, engine=engine)
    said: list[Interval] = [getattr(answer.as_is, name) for name in NUMBERS]
    came_to: list[Interval] = [getattr(truth.as_is, name) for name in NUMBERS]
    inside = tuple(
        one.low is not None and one.high is not None and two.mean is not None and one.low <= two.mean <= one.high
        for one, two in zip(said, came_to, strict=True)
    )
    cost = said[0]
    assert cost.low is not None and cost.high is not None and cost.mean is not None
    return Forked(inside, (cost.high - cost.low) / cost.mean, rounds, at)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--forks", type=int, default=400)
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--cases", default=",".join(CASES))
    asked = parser.parse_args()
    print("| runs | forks | " + " | ".join(NUMBERS) + " | width of the cost's interval |")
    print("|---|---|" + "---|" * (len(NUMBERS) + 1))
    for name in asked.cases.split(","):
        case, begun = CASES[name], time.process_time()
        found = [fork(case, number, asked.worlds) for number in range(asked.forks)]
        shares = np.mean([one.inside for one in found], axis=0)
        row = " | ".join(f"{100 * share:.1f} %" for share in shares)
        width = 100 * float(np.mean([one.width for one in found]))
        print(f"| {case.called} | {len(found)} | {row} | {width:.2f} % |", flush=True)
        for ahead in AHEAD:
            some = [one.inside[0] for one in found if one.ahead == ahead]
            print(f"<!-- {name}: {ahead} rounds ahead {np.mean(some):.3f} of {len(some)} -->")
        early = [one.inside[0] for one in found if one.at <= 100]
        took_s = time.process_time() - begun
        print(f"<!-- {name}: forked before round 100 {np.mean(early):.3f} of {len(early)}; {took_s:.0f} s of CPU -->")


if __name__ == "__main__":
    main()
