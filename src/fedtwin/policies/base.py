"""What a policy is: a score over what the twin knows of one idle device; the smallest score is chosen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

PowerRule = Literal["optimal", "max"]


class View(NamedTuple):
    """What a policy may look at: one device at round t, as the twin knows it. ``gain`` and ``compute_s`` are NaN until told."""

    round: int
    device: int
    samples: float
    selections: int
    observations: int
    mean_cost: float
    queue: float
    gain: float
    compute_s: float


class Knobs(NamedTuple):
    """The settings of a policy, and the seed of one that draws."""

    v: float
    bonus_scale: float
    seed: int


@dataclass(frozen=True)
class Policy:
    """A selection rule, and the power rule the paper pairs it with (``policy.power = "scheme"``)."""

    score: Callable[[View, Knobs], float]
    power: PowerRule


@dataclass(frozen=True)
class OraclePolicy:
    """A yardstick: its score is also handed the true cost of this very round, which no server knows."""

    score: Callable[[View, float, Knobs], float]
    power: PowerRule
