"""What a policy of the user's own has promised, held against what it does, while it runs."""

import math
from collections.abc import Callable
from typing import Any

from fedtwin.errors import FedtwinError
from fedtwin.policies.base import CHANGES_BY_ITSELF, Knobs, News, View
from fedtwin.policies.failures import sentence_of, sentence_of_failure
from fedtwin.usercode import is_ours

ROUNDING = 1e-9


def with_other_facts(view: View) -> View:
    """The same view but for all that a score with a lead may not look at."""
    return view._replace(
        gain=3e-11 if math.isnan(view.gain) else 1.5 * view.gain,
        compute_s=0.7 if math.isnan(view.compute_s) else 1.5 * view.compute_s,
        gain_age_s=11.0 if math.isnan(view.gain_age_s) else view.gain_age_s + 11.0,
        compute_age_s=13.0 if math.isnan(view.compute_age_s) else view.compute_age_s + 13.0,
        staleness=view.staleness + 17,
        train_loss=0.9 if math.isnan(view.train_loss) else 1.5 * view.train_loss,
    )


def sentence_of_hidden_look(name: str, view: View) -> str:
    allowed = ", ".join(CHANGES_BY_ITSELF)
    return (
        f"policy.name = {name!r} has a lead, and its score of device {view.device} in round {view.round} depends on what "
        f"changes by itself ({allowed}): leave lead out, and it is scanned."
    )


def next_state(name: str, policy: Any, state: Any, news: News, knobs: Knobs, device: int) -> Any:
    """The policy's own state of a device after it has observed something; whatever else it does instead is one sentence."""
    try:
        new = policy.observe(state, news, knobs)
        again = (
            new
            if is_ours(getattr(getattr(policy.observe, "__code__", None), "co_filename", ""))
            else policy.observe(state, news, knobs)
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise FedtwinError(sentence_of_failure(name, news.round, device, error, policy.observe)) from None
    check_state(name, policy, again, device, news)
    if [value.hex() for value in check_state(name, policy, new, device, news)] != [value.hex() for value in again]:
        raise FedtwinError(
            f"policy.name = {name!r}: observe gave {new} and then {again} for one state and one piece of news (round "
            f"{news.round}, device {device}): it may depend on its arguments only."
        )
    return new


def check_state(name: str, policy: Any, state: Any, device: int, news: News) -> Any:
    """What ``observe`` gave, or one sentence."""
    where = f"policy.name = {name!r}: observe, in round {news.round} for device {device},"
    if type(state) is not policy.state:
        raise FedtwinError(f"{where} gave a {type(state).__name__}, not a {policy.state.__name__}.")
    for field, value in zip(state._fields, state, strict=True):
        if type(value) is not float:
            raise FedtwinError(f"{where} gave {field} = {value!r} ({type(value).__name__}): a float is needed.")
    return state


def check_explanation(
    name: str, explain: Callable[[View, Knobs], dict[str, float]], view: View, knobs: Knobs, score: float
) -> dict[str, float]:
    """The named parts, if they sum to the score but for rounding; or one sentence."""
    try:
        parts = {str(part): float(value) for part, value in explain(view, knobs).items()}
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise FedtwinError(sentence_of(name, view, error, explain)) from None
    total = math.fsum(parts.values()) if all(map(math.isfinite, parts.values())) else math.nan
    size = sum(abs(value) for value in parts.values())
    if math.isfinite(score) and not abs(total - score) <= ROUNDING * max(size, abs(score), 1e-300):
        raise FedtwinError(
            f"policy.name = {name!r} explains the score {score!r} of device {view.device} in round {view.round} "
            f"by parts that sum to {total!r}."
        )
    return parts
