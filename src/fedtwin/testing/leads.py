"""A search for two devices and a round at which a policy's ``lead`` breaks its word."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from fedtwin.errors import FedtwinError
from fedtwin.policies import Knobs, Policy, View
from fedtwin.policies.base import attributes_in, last_if_nan
from fedtwin.policies.checks import sentence_of_hidden_look, with_other_facts
from fedtwin.policies.failures import score_of, sentence_of
from fedtwin.testing.views import Device, some_device, some_knobs, some_round

FAR = 10**7
NEAR = 20


def check_lead(name: str, policy: Policy, settings: Any, chance: np.random.Generator, pairs: int) -> None:
    """Pairs of devices that are not selected: who is behind must not pass, nor draw level, for as long as the lead lasts.

    Some are equal in all but their number: the lead is asked about those too where the score looks at it.
    """
    numbered = "device" in attributes_in(policy.score)
    for pair in range(pairs):
        round_, knobs = some_round(chance), some_knobs(chance, settings)
        one = some_device(chance, round_)
        other = one._replace(number=one.number + 1) if pair % 10 == 0 else _near(chance, one, some_device(chance, round_))

        def score(device: Device, at: int, knobs: Knobs = knobs) -> float:
            return last_if_nan(score_of(name, policy.score, device.view(at, knobs.min_mean_samples), knobs))

        _look_at_what_is_allowed(name, policy, one.view(round_, knobs.min_mean_samples), knobs)
        ahead, behind = sorted((one, other), key=lambda device: score(device, round_))
        gap = score(behind, round_) - score(ahead, round_)
        if not math.isfinite(gap):
            continue
        lasts = math.inf
        if numbered or one._replace(number=0) != other._replace(number=0):
            lasts = _lead(name, policy, ahead, behind, round_, gap, knobs)
        passed = _when_passed(lambda at: score(behind, at) - score(ahead, at), chance, round_, lasts, gap)  # noqa: B023
        if passed is not None:
            what = f"said {lasts:g}" if math.isfinite(lasts) else "said for ever"
            if not numbered and one._replace(number=0) == other._replace(number=0):
                what = "is not asked, for they differ in their number only"
            raise FedtwinError(
                f"policy.name = {name!r}: a device is passed {passed} rounds after round {round_} by the one behind, and its "
                f"lead {what} (ahead: {_words(ahead)}; behind: {_words(behind)}; v = {knobs.v:g}, "
                f"bonus_scale = {knobs.bonus_scale:g}, min_mean_samples = {knobs.min_mean_samples:g})."
            )


def _near(chance: np.random.Generator, one: Device, other: Device) -> Device:
    """Half of the pairs differ in a few things only: those are close."""
    if chance.random() < 0.5:
        return other
    field = str(chance.choice(["samples", "queue", "queue_round", "mean_cost"]))
    if field == "mean_cost" and not (one.selections and other.selections):
        field = "samples"
    return one._replace(number=one.number + 1, **{field: getattr(other, field)})


def _lead(name: str, policy: Policy, ahead: Device, behind: Device, round_: int, gap: float, knobs: Knobs) -> float:
    assert policy.lead is not None
    first, second = (device.view(round_, knobs.min_mean_samples) for device in (ahead, behind))
    try:
        lasts: Any = policy.lead(first, second, gap, knobs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise FedtwinError(f"{sentence_of(name, first, error, policy.lead).rstrip('.')}, in its lead.") from None
    if not isinstance(lasts, Real) or math.isnan(lasts):
        raise FedtwinError(f"policy.name = {name!r}: its lead gave {lasts!r}: a number of rounds is needed.")
    return float(lasts)


def _look_at_what_is_allowed(name: str, policy: Policy, view: View, knobs: Knobs) -> None:
    one, other = (last_if_nan(score_of(name, policy.score, seen, knobs)) for seen in (view, with_other_facts(view)))
    if one != other:
        raise FedtwinError(sentence_of_hidden_look(name, view))


def _when_passed(
    gap_at: Callable[[int], float], chance: np.random.Generator, round_: int, lasts: float, gap: float
) -> int | None:
    """How many rounds later, if ever within the lead. Near the least gap found it looks closer."""
    last = int(min(max(math.floor(lasts) if math.isfinite(lasts) else FAR, 0), FAR))
    steps = {0, last, *range(min(last, NEAR) + 1), *range(max(0, last - NEAR), last + 1)}
    steps |= {min(2**power, last) for power in range(24)} | {int(step) for step in chance.integers(0, last + 1, 20)}
    found = {step: gap_at(round_ + step) for step in sorted(steps)}
    width = max(1, last // 8)
    while width > 1:
        least = min(found, key=lambda step: (found[step], step))
        width //= 2
        found |= {step: gap_at(round_ + step) for step in (least - width, least + width) if 0 <= step <= last}
    passed = [step for step, rest in found.items() if rest < 0.0 or (rest == 0.0 and gap > 0.0)]
    return min(passed) if passed else None


def _words(device: Device) -> str:
    names = [*Device._fields[1:]]
    return ", ".join(f"{name} {getattr(device, name):.6g}" for name in names)
