"""What is answered: two futures, each number with the interval that holds what will be in nine cases of ten."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
OUTSIDE = 0.05
"""The chance to lie below the interval, and that to lie above it."""
ENOUGH_WORLDS = 19
"""Of so many a quantile of 5 % is the least."""
NUMBERS = ("mean_cost", "mean_time_s", "mean_energy_j", "least_mean_samples", "total_queue")


@dataclass(frozen=True)
class Interval:
    """The mean over the worlds, and the 90 % prediction interval; None where nobody was selected in any of them."""

    mean: float | None
    low: float | None
    high: float | None


def interval_of(values: Floats, least: float = -math.inf) -> Interval:
    """A value more of the same kind lies inside in 90 % of cases: order statistics by rank k / (worlds + 1).

    Of too few worlds for that, as if their values were normal (Student's t), but none below ``least``. One world says what
    is, with no doubt.
    """
    values = np.sort(values[~np.isnan(values)])
    count = len(values)
    if count == 0:
        return Interval(None, None, None)
    mean = float(values.mean())
    if count == 1:
        return Interval(mean, mean, mean)
    if count < ENOUGH_WORLDS:
        from scipy.stats import t

        reach = float(t.ppf(1.0 - OUTSIDE, count - 1) * values.std(ddof=1) * math.sqrt(1.0 + 1.0 / count))
        return Interval(mean, max(mean - reach, least), mean + reach)
    low, high = np.quantile(values, [OUTSIDE, 1.0 - OUTSIDE], method="weibull")
    return Interval(mean, float(low), float(high))


@dataclass(frozen=True)
class Played:
    """One world, played to its end: the clock, the mean cost so far and the total queue at some points, and the numbers."""

    clock_s: Floats
    mean_cost: Floats
    total_queue: Floats
    numbers: Floats

    def __eq__(self, other: object) -> bool:
        """To the last bit."""
        if not isinstance(other, Played):
            return NotImplemented
        return all(getattr(self, name).tobytes() == getattr(other, name).tobytes() for name in self.__dataclass_fields__)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Numbers:
    """Means are over the selections made since the fork; ``least_mean_samples`` is per round since then."""

    mean_cost: Interval
    mean_time_s: Interval
    mean_energy_j: Interval
    least_mean_samples: Interval
    total_queue: Interval


@dataclass(frozen=True)
class Future(Numbers):
    """What a fleet comes to, and on which ways: ``curves`` have the cost's running mean and the total queue."""

    curves: dict[str, Any]


def future_of(worlds: Sequence[Played]) -> Future:
    columns = np.array([played.numbers for played in worlds])
    clock_s = np.array([played.clock_s for played in worlds]).mean(axis=0)
    curves: dict[str, Any] = {"clock_s": clock_s.tolist()}
    for name in ("mean_cost", "total_queue"):
        points = np.array([getattr(played, name) for played in worlds])
        found = [interval_of(points[:, k], 0.0) for k in range(points.shape[1])]
        curves[name] = {side: [getattr(one, side) for one in found] for side in ("mean", "low", "high")}
    numbers: dict[str, Any] = {name: interval_of(columns[:, k], 0.0) for k, name in enumerate(NUMBERS)}
    return Future(**numbers, curves=curves)


def difference_of(as_is: Sequence[Played], what_if: Sequence[Played]) -> Numbers:
    """What the change does, world by world: much of what is not known is the same for both."""
    apart = np.array([b.numbers for b in what_if]) - np.array([a.numbers for a in as_is])
    return Numbers(*(interval_of(apart[:, k]) for k in range(len(NUMBERS))))


@dataclass(frozen=True)
class Answer:
    """Both futures from ``at_round`` on, ``difference`` = what_if − as_is world by world, and what all of it rests on."""

    run: str
    at_round: int
    rounds: int
    worlds: int
    as_is: Future
    what_if: Future
    difference: Numbers
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "notes": list(self.notes)}
