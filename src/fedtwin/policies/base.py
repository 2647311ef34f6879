"""What a policy is: a score over what the twin knows of one idle device; the smallest score is chosen."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from fedtwin.errors import FedtwinError

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


def last_if_nan(score: float) -> float:
    """A score that is not a number comes last."""
    return math.inf if math.isnan(score) else score


def as_if_told(view: View) -> View:
    """The view with ordinary numbers for what the device has not told yet: a score that is NaN only for want of it is none."""
    gain = 1e-12 if math.isnan(view.gain) else view.gain
    compute_s = 0.1 if math.isnan(view.compute_s) else view.compute_s
    return View(
        view.round, view.device, view.samples, view.selections, view.observations, view.mean_cost, view.queue, gain, compute_s
    )  # fmt: skip


ROUNDING = 1e-12


def rounds_ahead(gap: float, closing: float, size: float, growth: float) -> float:
    """How long a lead of ``gap`` lasts if it shrinks by at most ``closing`` a round.

    ``size`` bounds the terms that both scores are made of, now, and ``growth`` how much they grow in a round: their rounding
    errors, taken a thousand times larger than they are, count against the lead.
    """
    sure, speed = gap - ROUNDING * size, closing + ROUNDING * growth
    if sure <= 0.0:
        return 0.0
    return sure / speed if speed > 0.0 else math.inf


class Knobs(NamedTuple):
    """The settings of a policy, the seed of one that draws, and D_min, by which queues grow."""

    v: float
    bonus_scale: float
    seed: int
    min_mean_samples: float


@dataclass(frozen=True)
class Policy:
    """A selection rule, and the power rule the paper pairs it with (``policy.power = "scheme"``).

    ``lead`` makes decisions quick in a large fleet; without it every idle device is looked at for each. Given two devices at
    round t, the first with the smaller score, and the gap between their scores, it answers for how many rounds the second
    cannot pass the first as long as neither is selected, rounding included (``rounds_ahead``). Such a policy scores devices
    that differ only in ``device``, ``gain`` and ``compute_s`` alike.
    """

    score: Callable[[View, Knobs], float]
    power: PowerRule
    lead: Callable[[View, View, float, Knobs], float] | None = None

    def __post_init__(self) -> None:
        _check_rules(self.power, score=self.score)
        if self.lead is not None:
            _check_rules(self.power, lead=self.lead)


@dataclass(frozen=True)
class OraclePolicy:
    """A yardstick: its score is also handed the true cost of this very round, which no server knows."""

    score: Callable[[View, float, Knobs], float]
    power: PowerRule

    def __post_init__(self) -> None:
        _check_rules(self.power, score=self.score)


def _check_rules(power: Any, **functions: Any) -> None:
    """Whoever writes a policy hears at once of what could only fail, or mislead, later."""
    if not isinstance(power, str) or power not in get_args(PowerRule):
        allowed = " or ".join(map(repr, get_args(PowerRule)))
        raise FedtwinError(f"power = {power!r} is unknown: choose {allowed}.")
    for name, function in functions.items():
        if not callable(function):
            raise FedtwinError(f"{name} = {function!r} is a {type(function).__name__}: a function is needed.")
