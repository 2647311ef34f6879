"""What a policy is: a score over what the twin knows of one idle device; the smallest score is chosen."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from fedtwin.compiling.translate import reached
from fedtwin.errors import FedtwinError
from fedtwin.parts import check_schema

PowerRule = Literal["optimal", "max"]


class Prediction(NamedTuple):
    """One update by the power rule, at the gain the twin knows and the mean of the CPU frequencies heard."""

    time_s: float
    """Seconds of computing and upload; infinite if it is predicted to decline, NaN while nothing was heard of the device."""
    energy_j: float
    """Joules of both; infinite and NaN likewise."""
    cost: float
    """Ω_n; infinite and NaN likewise."""
    feasible: bool
    """Whether there is a power that meets C5 and C6."""
    by_its_cpu: bool
    """It is predicted to decline and would not if its training took nothing: the CPU heard of decides, not the link alone."""


class View(NamedTuple):
    """What a policy may look at: one device at round t, as the twin knows it (docs/own_code.md, field by field)."""

    round: int
    """t, the round that is being decided."""
    device: int
    """n, from 0."""
    samples: float
    """D_n, samples per local training, as the device announced last: at first, or when it accepted a round."""
    selections: int
    """How often it was chosen and accepted, the first dispatches not counted."""
    observations: int
    """Γ_n, how many costs have been learned."""
    mean_cost: float
    """s̄_n, mean of the costs learned, 0 while there are none."""
    queue: float
    """Q_n(t), virtual queue, in samples."""
    gain: float
    """Channel gain by ``twin.gain``: last heard of, of this moment, or the mean of those heard. NaN until heard."""
    compute_s: float
    """Seconds its last training computed, predicted while it is in flight. NaN until it took part."""
    gain_age_s: float = math.nan
    """Seconds since the gain was heard of; 0 where it is that of this moment. NaN until heard."""
    compute_age_s: float = math.nan
    """Seconds since ``compute_s`` was learned. NaN until then."""
    staleness: int = 0
    """Aggregations since it last downloaded the model; all there were if it never did."""
    train_loss: float = math.nan
    """Mean training loss of its last upload. NaN where no model is trained, or until it uploaded."""
    prediction: Any = ()
    """The next update as a ``Prediction``, for a policy with ``predicts=True``; nothing for any other."""
    state: Any = ()
    """The policy's own state of this device, as ``observe`` left it; nothing for a policy without."""


class News(NamedTuple):
    """What is learned of a device at once, for ``observe``: NaN is what is not."""

    round: int
    """t, the round that is open."""
    cost: float
    """Ω_n of one update."""
    time_s: float
    """What that update is charged, in seconds."""
    energy_j: float
    """And in joules."""
    train_loss: float
    """Mean training loss of an upload that arrived."""
    declined: bool
    """It was asked and declined, or did not answer."""


CHANGES_BY_ITSELF = (*("gain", "compute_s", "gain_age_s", "compute_age_s", "staleness", "train_loss", "prediction", "state"),)
"""What a score with a ``lead`` may not look at."""


def last_if_nan(score: float) -> float:
    """A score that is not a number comes last."""
    return math.inf if math.isnan(score) else score


def as_if_told(view: View) -> View:
    """The view with ordinary numbers for what the device has not told yet: a score that is NaN only for want of it is none."""
    return View(
        view.round, view.device, view.samples, view.selections, view.observations, view.mean_cost, view.queue,
        1e-12 if math.isnan(view.gain) else view.gain,
        0.1 if math.isnan(view.compute_s) else view.compute_s,
        1.0 if math.isnan(view.gain_age_s) else view.gain_age_s,
        1.0 if math.isnan(view.compute_age_s) else view.compute_age_s,
        view.staleness,
        1.0 if math.isnan(view.train_loss) else view.train_loss,
        prediction_as_if_told(view.prediction),
        view.state,
    )  # fmt: skip


def prediction_as_if_told(prediction: Any) -> Any:
    return Prediction(0.5, 0.5, 0.5, True, False) if prediction != () and math.isnan(prediction.cost) else prediction


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
    """What a policy is told besides: Ṽ, the factor on the bonus, the seed of one that draws, D_min, and its own settings."""

    v: float
    bonus_scale: float
    seed: int
    min_mean_samples: float
    settings: Any = ()


@dataclass(frozen=True)
class Policy:
    """A selection rule, and the power rule the paper pairs it with (``policy.power = "scheme"``).

    ``lead`` makes decisions quick in a large fleet; without it every idle device is looked at for each. Given two devices at
    round t, the first with the smaller score, and the gap between their scores, it answers for how many rounds the second
    cannot pass the first as long as neither is selected, rounding included (``rounds_ahead``). Such a policy looks at nothing
    that changes by itself: not at gain, compute time, ages, staleness, loss, prediction or state.

    ``settings`` is a NamedTuple class whose values stand in ``[policy.settings]`` and come as ``knobs.settings``. ``state`` is
    one of floats, its defaults are where every device begins, and ``observe(state, news, knobs)`` gives the next state.
    ``predicts`` asks for ``view.prediction``. ``explain(view, knobs)`` names the parts that a score is the sum of.
    """

    score: Callable[[View, Knobs], float]
    power: PowerRule
    lead: Callable[[View, View, float, Knobs], float] | None = None
    settings: Any = None
    state: Any = None
    observe: Callable[[Any, News, Knobs], Any] | None = None
    predicts: bool = False
    explain: Callable[[View, Knobs], dict[str, float]] | None = None

    def __post_init__(self) -> None:
        optional = {"lead": self.lead, "observe": self.observe, "explain": self.explain}
        _check_rules(self.power, self.settings, score=self.score, **{k: v for k, v in optional.items() if v is not None})
        if (self.state is None) != (self.observe is None):
            raise FedtwinError("A policy with a state needs observe, which changes it, and one with observe a state.")
        if self.state is not None:
            check_schema("Policy state", self.state, (float,))
        if self.lead is not None:
            self._look_only_at_what_a_lead_allows()

    def _look_only_at_what_a_lead_allows(self) -> None:
        names = attributes_in(self.score)
        names |= {"prediction"} if self.predicts else set()
        names |= {"state"} if self.state is not None else set()
        for name in CHANGES_BY_ITSELF:
            if name in names:
                raise FedtwinError(f"A policy that looks at {name} cannot have a lead: leave lead out, and it is scanned.")


@dataclass(frozen=True)
class OraclePolicy:
    """A yardstick: its score is also handed the true cost of this very round, which no server knows."""

    score: Callable[[View, float, Knobs], float]
    power: PowerRule
    settings: Any = None
    lead: ClassVar[None] = None
    state: ClassVar[None] = None
    observe: ClassVar[None] = None
    predicts: ClassVar[bool] = False
    explain: ClassVar[None] = None

    def __post_init__(self) -> None:
        _check_rules(self.power, self.settings, score=self.score)


def attributes_in(function: Any) -> set[str]:
    """Every attribute that a plain function names, also in functions inside it and in those of its module that it calls."""
    names: set[str] = set()
    codes = [one.__code__ for one in reached(function, {}, {})] if isinstance(function, FunctionType) else []
    while codes:
        code = codes.pop()
        names |= set(code.co_names)
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return names


def _check_rules(power: Any, settings: Any, **functions: Any) -> None:
    """Whoever writes a policy hears at once of what could only fail, or mislead, later."""
    if not isinstance(power, str) or power not in get_args(PowerRule):
        allowed = " or ".join(map(repr, get_args(PowerRule)))
        raise FedtwinError(f"power = {power!r} is unknown: choose {allowed}.")
    if settings is not None:
        check_schema("Policy settings", settings)
    for name, function in functions.items():
        if not callable(function):
            raise FedtwinError(f"{name} = {function!r} is a {type(function).__name__}: a function is needed.")
