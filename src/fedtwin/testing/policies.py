"""Whether a policy keeps its word: asked with made-up views, then run for a while in both engines."""

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedtwin.errors import FedtwinError
from fedtwin.parts import settings_of
from fedtwin.policies import Knobs, News, OraclePolicy, Policy, load_policy
from fedtwin.policies.base import as_if_told, attributes_in, last_if_nan
from fedtwin.policies.checks import check_explanation, next_state
from fedtwin.policies.failures import score_of, sentence_of_chance
from fedtwin.testing.engines import Engines, Variant, check_engines, config_with
from fedtwin.testing.leads import check_lead
from fedtwin.testing.views import Asked, some_question
from fedtwin.usercode import clear_caches, digest_of

QUESTIONS, PAIRS = 400, 300
WITH_A_TOURNAMENT = {"fleet.devices": 400, "fleet.channels": 40}
LOOKS_AT_LINKS = {"gain", "gain_age_s", "prediction"}


def check_policy(
    policy: str | Policy | OraclePolicy, settings: Mapping[str, Any] | None = None, *, rounds: int = 120
) -> Engines:
    """Asks a policy with made-up views whether it is what a run needs, and runs it for a while.

    That is: a score is a number, and NaN only for want of what a device has not told yet; the same arguments give the same
    score, state and explanation, in whatever order they come; ``observe`` gives the declared state, of floats; the parts of
    an explanation sum to the score; a ``lead`` keeps its word, and a policy that has one looks at nothing that changes by
    itself; and both engines give the same rows, asynchronously and synchronously, with both feedbacks, and, for a policy
    that looks at links, in all three ways in which a twin knows them.

    :param policy: a ``Policy`` or ``OraclePolicy``, its registered or installed name, or ``module:attribute``.
    :param settings: the policy's own settings, where they are not to be its defaults.
    :param rounds: how long each of the runs is.
    :returns: whether it is compiled, and if not, why.
    :raises FedtwinError: the first promise that is not kept, in one sentence.
    """
    found = load_policy(policy) if isinstance(policy, str) else policy
    if not isinstance(found, Policy | OraclePolicy):
        raise FedtwinError(f"policy = {policy!r} is a {type(policy).__name__}, not a name nor a fedtwin.Policy.")
    config = config_with("policy.name", policy, "policy.settings", settings, rounds)
    name, own = config.policy.name, settings_of("policy.settings", found.settings, config.policy.settings)
    before = digest_of(found, running=True)
    _check_answers(name, found, own)
    if isinstance(found, Policy) and found.lead is not None:
        check_lead(name, found, own, np.random.default_rng(2), PAIRS)
    if digest_of(found, running=True) != before:
        raise FedtwinError(
            f"policy.name = {name!r} changes something of its own while it runs (a global, a closure, an attribute): "
            "a score may look at its arguments only."
        )
    return check_engines(config, "policy.name", _variants(found))


def _check_answers(name: str, policy: Policy | OraclePolicy, settings: Any) -> None:
    """Every question twice, in two orders, the second time with empty caches."""
    chance = np.random.default_rng(1)

    def state_after(story: list[News], knobs: Knobs) -> Any:
        state: Any = policy.state() if policy.state is not None else ()
        for news in story:
            state, old = next_state(name, policy, state, news, knobs, 0), state
            again = next_state(name, policy, old, news, knobs, 0)
            if _bits(state) != _bits(again):
                raise FedtwinError(
                    f"policy.name = {name!r}: observe gave {state!r} and then {again!r} for one state and one piece of news: "
                    "it may depend on its arguments only."
                )
        return state

    asked = [some_question(chance, policy, settings, state_after) for _ in range(QUESTIONS)]
    scores = [_score(name, policy, question) for question in asked]
    clear_caches(policy)
    for place in chance.permutation(len(asked)).tolist():
        again = _score(name, policy, asked[place])
        if _bits((again,)) != _bits((scores[place],)):
            raise FedtwinError(sentence_of_chance(name, asked[place].view, scores[place], again))
    for question, score in zip(asked, scores, strict=True):
        _require_a_number(name, policy, question, score)
        if policy.explain is not None:
            _check_explained(name, policy, question, last_if_nan(score))


def _score(name: str, policy: Policy | OraclePolicy, asked: Asked) -> float:
    true_cost = (asked.true_cost,) if isinstance(policy, OraclePolicy) else ()
    return score_of(name, policy.score, asked.view, *true_cost, asked.knobs)


def _require_a_number(name: str, policy: Policy | OraclePolicy, asked: Asked, score: float) -> None:
    """NaN is for what was not told; a state may lack what no device of a run without training tells."""
    if not math.isnan(score) or (policy.state is not None and not asked.all_told):
        return
    if math.isnan(_score(name, policy, asked._replace(view=as_if_told(asked.view)))):
        raise FedtwinError(
            f"policy.name = {name!r} gives the score NaN in round {asked.view.round} for device {asked.view.device}, of which "
            f"everything is known ({asked.view!r}): NaN is for what a device has not told yet."
        )


def _check_explained(name: str, policy: Policy | OraclePolicy, asked: Asked, score: float) -> None:
    assert policy.explain is not None
    parts = check_explanation(name, policy.explain, asked.view, asked.knobs, score)
    again = check_explanation(name, policy.explain, asked.view, asked.knobs, score)
    if list(parts) != list(again) or _bits(tuple(parts.values())) != _bits(tuple(again.values())):
        raise FedtwinError(f"policy.name = {name!r} explains one score by {parts!r} and then by {again!r}.")


def _variants(policy: Policy | OraclePolicy) -> Iterator[Variant]:
    for gain in ("last-heard", "current", "mean") if _looks_at_links(policy) else ("last-heard",):
        for mode in ("async", "sync"):
            yield {"run.mode": mode, "twin.gain": gain}
        yield {"run.mode": "async", "twin.gain": gain, "policy.feedback": "on-arrival"}
    if policy.lead is not None:
        yield {"run.mode": "async", "objective.min_mean_samples": 0.2, **WITH_A_TOURNAMENT}


def _looks_at_links(policy: Policy | OraclePolicy) -> bool:
    return policy.predicts or bool(attributes_in(policy.score) & LOOKS_AT_LINKS)


def _bits(numbers: tuple[Any, ...]) -> bytes:
    return struct.pack(f"<{len(numbers)}d", *(float(number) for number in numbers))
