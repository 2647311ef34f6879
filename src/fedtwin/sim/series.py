"""Mean cost and total queue as a run goes on, sampled at chosen rounds by either engine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedtwin.records import Tally


@dataclass
class Series:
    """Cumulative mean cost and total queue as they stood at chosen rounds; the longest queue only where somebody found it."""

    rounds: list[int] = field(default_factory=list)
    mean_cost: list[float] = field(default_factory=list)
    total_queue: list[float] = field(default_factory=list)
    longest_queue: list[float] = field(default_factory=list)


@dataclass
class Point:
    """A round at which the series is sampled, and what was found there. The compiled engine has records of these fields."""

    round: int
    mean_cost: float = 0.0
    total_queue: float = 0.0


def points_at(checkpoints: Iterable[int]) -> list[Point]:
    """In their order, each once."""
    return [Point(round_) for round_ in sorted(set(checkpoints))]


def sample(tally: Any, points: Any, round_: int, total_queue: float) -> None:
    """After a selection: every point that was asked for and has now been reached. It is compiled as well."""
    while tally.sampled < len(points) and round_ >= points[tally.sampled].round:
        points[tally.sampled].mean_cost = tally.cost_sum / tally.selections
        points[tally.sampled].total_queue = total_queue
        tally.sampled += 1


def series_of(tally: Tally, points: Sequence[Point]) -> Series:
    """What was sampled; a run may end before the last points."""
    reached = points[: tally.sampled]
    return Series(
        [point.round for point in reached], [point.mean_cost for point in reached], [point.total_queue for point in reached]
    )
