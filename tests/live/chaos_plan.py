"""What is done to a fleet of real processes, and in which order: drawn from one number, so that it can be done again."""

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

What = Literal["kill", "pause", "empty store", "full disk"]
KILLS = {"edge": 0.16, "standby": 0.13, "broker": 0.17, "device": 0.54}
"""Of all kills. An edge server is who serves, a standby who waits for it."""
PAUSES_A_KILL = {"edge": 0.025, "standby": 0.015, "broker": 0.025, "device": 0.04}
EMPTY_STORES_A_KILL, FULL_DISKS_A_KILL = 0.015, {"edge": 0.008, "broker": 0.008}
MOST_PAUSE_S = {"edge": 4.0, "standby": 4.0, "broker": 4.0, "device": 6.0}
ALONE = ("empty store", "full disk")
"""Two of them at a time would need each other's time."""


@dataclass(frozen=True)
class Fault:
    """Something is done to a process or its disk; ``lasts_s``, and then the next one comes."""

    what: What
    whom: str
    lasts_s: float = 0.0
    then_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.what} {self.whom}" + (f" for {self.lasts_s:.1f} s" if self.lasts_s else "")


@dataclass(frozen=True)
class Step:
    """Faults that meet each other. Unless it is ``rushed``, the next step comes when uploads are mixed in again."""

    faults: tuple[Fault, ...]
    rushed: bool

    def __str__(self) -> str:
        return ", ".join(map(str, self.faults)) + (", and on at once" if self.rushed else "")


def schedule(seed: int, kills: int) -> list[Step]:
    """Exactly so many kills, the other faults in proportion (one of each at least), in any order."""
    chance = random.Random(seed)
    faults = _all_of(kills, chance)
    chance.shuffle(faults)
    steps: list[Step] = []
    while faults:
        together = [faults.pop()]
        while faults and chance.random() < 0.45 and not _too_much(together, faults[-1]):
            together.append(faults.pop())
        together = [replace(fault, then_s=chance.choice((0.0, chance.uniform(0.0, 0.4)))) for fault in together]
        steps.append(Step(tuple(together), rushed=bool(faults) and chance.random() < 0.25))
    return steps


def counted(steps: list[Step]) -> Counter[tuple[str, str]]:
    """How often what is done to whom."""
    return Counter((fault.what, fault.whom) for step in steps for fault in step.faults)


def _too_much(together: list[Fault], fault: Fault) -> bool:
    return len(together) >= 6 or (fault.what in ALONE and any(one.what in ALONE for one in together))


def _all_of(kills: int, chance: random.Random) -> list[Fault]:
    numbers = {whom: round(share * kills) for whom, share in KILLS.items()}
    numbers["device"] += kills - sum(numbers.values())
    faults = [Fault("kill", whom) for whom, number in numbers.items() for _ in range(number)]
    for whom, share in PAUSES_A_KILL.items():
        faults += [Fault("pause", whom, chance.uniform(0.2, MOST_PAUSE_S[whom])) for _ in range(_some(share, kills))]
    faults += [Fault("empty store", "broker") for _ in range(_some(EMPTY_STORES_A_KILL, kills))]
    for whom, share in FULL_DISKS_A_KILL.items():
        faults += [Fault("full disk", whom, chance.uniform(0.5, 4.0)) for _ in range(_some(share, kills))]
    return faults


def _some(share: float, kills: int) -> int:
    return max(1, round(share * kills))
