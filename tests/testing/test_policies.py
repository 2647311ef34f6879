"""Every promise of a policy: whoever breaks it is found out, in one sentence."""

import functools
import math
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedtwin.config import replace_settings
from fedtwin.errors import FedtwinError
from fedtwin.policies import Knobs, News, OraclePolicy, Policy, View
from fedtwin.policies.base import rounds_ahead
from fedtwin.testing import check_policy
from fedtwin.testing import policies as checker
from fedtwin.testing.engines import Engines
from fedtwin.testing.leads import check_lead

COUNTED = [0]


class Mean(NamedTuple):
    """A state."""

    total: float = 0.0
    heard: float = 0.0


class Weight(NamedTuple):
    """Settings."""

    weight: float = 2.0


def queue(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    return -view.queue * view.samples


def by_the_time(view: View, knobs: Knobs) -> float:
    return queue(view, knobs) + time.perf_counter()


def by_chance(view: View, knobs: Knobs) -> float:
    return queue(view, knobs) * random.random()


def counting(view: View, knobs: Knobs) -> float:
    COUNTED[0] += 1
    return queue(view, knobs) + COUNTED[0] // 10**6


def never_a_number(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    return math.nan


@functools.cache
def drawn(device: int, round_: int) -> float:  # noqa: ARG001
    return random.random()


def by_memoised_chance(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    return drawn(view.device, view.round)


def seldom_a_number(view: View, knobs: Knobs) -> float:
    return math.nan if view.selections > 3 else queue(view, knobs)


def a_text(view: View, knobs: Knobs) -> Any:  # noqa: ARG001
    return "first"


def no_prediction(view: View, knobs: Knobs) -> float:
    return float(knobs.v * view.prediction.cost)


def no_state(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    return float(view.state.total)


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (by_the_time, r"two scores in round \d+, .*may depend on its arguments only"),
        (by_chance, r"two scores in round \d+, .*may depend on its arguments only"),
        (by_memoised_chance, r"two scores in round \d+, .*may depend on its arguments only"),
        (counting, "changes something of its own while it runs"),
        (never_a_number, "gives the score NaN in round .* of which everything is known"),
        (seldom_a_number, "gives the score NaN in round .* of which everything is known"),
        (a_text, r"returned 'first' \(str, not a number\)"),
        (no_prediction, "looks for 'cost' in what its Policy does not declare: view.prediction needs predicts=True"),
        (no_state, "looks for 'total' in what its Policy does not declare: .* view.state a state"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_broken_score_is_one_sentence(score: Any, words: str) -> None:
    _refused(Policy(score, power="optimal"), words)


def _refused(policy: Any, words: str) -> None:
    with pytest.raises(FedtwinError, match=words) as told:
        check_policy(policy)
    assert "\n" not in str(told.value) and str(told.value).endswith(".") and "Traceback" not in str(told.value)


def always(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:  # noqa: ARG001
    return math.inf


def by_one_too_long(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:
    closing = max(behind.samples - ahead.samples, 0.0) * knobs.min_mean_samples
    return gap / closing + 1.0 if closing > 0.0 else math.inf


def a_little_too_long(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:
    return 1.01 * good_lead(ahead, behind, gap, knobs)


def good_lead(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:
    closing = max(behind.samples - ahead.samples, 0.0) * knobs.min_mean_samples
    size = ahead.queue * ahead.samples + behind.queue * behind.samples
    return rounds_ahead(gap, closing, size, (ahead.samples + behind.samples) * knobs.min_mean_samples)


def not_a_number(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:  # noqa: ARG001
    return math.nan


def failing(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:  # noqa: ARG001
    return gap / 0.0


def by_number(view: View, knobs: Knobs) -> float:
    return queue(view, knobs) + (view.round * view.device) % 7


@pytest.mark.parametrize(
    ("score", "lead", "words"),
    [
        (queue, always, r"is passed \d+ rounds after round \d+ by the one behind, and its lead said for ever \(ahead: samples"),
        (queue, by_one_too_long, r"is passed \d+ rounds after .*, and its lead said \d"),
        (queue, a_little_too_long, r"is passed \d+ rounds after .*, and its lead said \d"),
        (queue, not_a_number, "its lead gave nan: a number of rounds is needed"),
        (queue, failing, r"ZeroDivisionError: .* \(.*test_policies\.py, line \d+\), in its lead"),
        (by_number, good_lead, r"is passed \d+ rounds after .*, and its lead said \d"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_lead_that_breaks_its_word_is_found(score: Any, lead: Any, words: str) -> None:
    _refused(Policy(score, power="optimal", lead=lead), words)


def weighted(view: View, knobs: Knobs) -> float:
    return queue(view, knobs) * (1.0 + view.device % 3)


def never_certain(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:  # noqa: ARG001
    return 0.0


def number_aside(view: View, knobs: Knobs) -> float:
    return queue(view, knobs) + (view.round * float(getattr(view, "dev" + "ice"))) % 7


def test_a_score_beside_a_lead_may_look_at_numbers_that_the_lead_reckons_with() -> None:
    check_lead("weighted", Policy(weighted, power="max", lead=never_certain), (), np.random.default_rng(2), 300)
    with pytest.raises(FedtwinError, match=r"is passed .* lead is not asked, for they differ in their number only"):
        check_lead("aside", Policy(number_aside, power="max", lead=never_certain), (), np.random.default_rng(2), 300)


def test_a_lead_over_a_hidden_look_is_found() -> None:
    def gain_of(view: View) -> float:
        return float(getattr(view, "ga" + "in"))

    def looks(view: View, knobs: Knobs) -> float:
        gain = gain_of(view)
        return queue(view, knobs) - (0.0 if math.isnan(gain) else gain)

    _refused(Policy(looks, power="optimal", lead=good_lead), "has a lead, and its score .* depends on what changes by itself")


def right(state: Mean, news: News, knobs: Knobs) -> Mean:  # noqa: ARG001
    return state if math.isnan(news.cost) else Mean(state.total + news.cost, state.heard + 1.0)


def a_tuple(state: Mean, news: News, knobs: Knobs) -> Any:
    return tuple(right(state, news, knobs))


def whole_numbers(state: Mean, news: News, knobs: Knobs) -> Any:  # noqa: ARG001
    return Mean(state.total, int(state.heard) + 1)


def random_state(state: Mean, news: News, knobs: Knobs) -> Mean:  # noqa: ARG001
    return Mean(random.random(), state.heard)


def failing_observe(state: Mean, news: News, knobs: Knobs) -> Mean:  # noqa: ARG001
    return Mean(1.0 / (1.0 - float(news.declined)), 0.0)


def takes_nan_in(state: Mean, news: News, knobs: Knobs) -> Mean:  # noqa: ARG001
    return Mean(state.total + news.cost, state.heard + 1.0)


def by_state(view: View, knobs: Knobs) -> float:
    mean = view.state.total / view.state.heard if view.state.heard > 0.0 else 0.0
    return float(knobs.settings.weight * knobs.v * mean - view.queue * view.samples)


@pytest.mark.parametrize(
    ("observe", "words"),
    [
        (a_tuple, "observe, in round .*, gave a tuple, not a Mean"),
        (whole_numbers, r"gave heard = \d+ \(int\): a float is needed"),
        (random_state, "observe gave .* and then .* for one state and one piece of news"),
        (failing_observe, r"ZeroDivisionError: .* \(.*test_policies\.py, line \d+\)"),
        (takes_nan_in, "gives the score NaN in round .* of which everything is known"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_broken_observe_is_one_sentence(observe: Any, words: str) -> None:
    _refused(Policy(by_state, power="optimal", settings=Weight, state=Mean, observe=observe), words)


def half(view: View, knobs: Knobs) -> dict[str, float]:
    return {"queue": 0.5 * queue(view, knobs)}


def nothing(view: View, knobs: Knobs) -> Any:  # noqa: ARG001
    return None


def random_parts(view: View, knobs: Knobs) -> dict[str, float]:
    some = random.random()
    return {"one": some * queue(view, knobs), "other": (1.0 - some) * queue(view, knobs)}


@pytest.mark.parametrize(
    ("explain", "words"),
    [
        (half, "explains the score .* by parts that sum to"),
        (nothing, "AttributeError: 'NoneType' object has no attribute 'items'"),
        (random_parts, "explains one score by .* and then by"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_broken_explanation_is_one_sentence(explain: Any, words: str) -> None:
    _refused(Policy(queue, power="optimal", explain=explain), words)


def test_rows_that_differ_between_the_engines_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedtwin.testing import engines

    runs = engines._run

    def other(config: Any, engine: str) -> Any:
        changes = {} if engine == "readable" else {"run.seed": 1}
        return runs(replace_settings(config, changes), "readable")

    monkeypatch.setattr(engines, "_run", other)
    _refused("queue-only", r"gives other rows when it is compiled \(run\.mode = 'async', .*; round 1: \w+ is .*, compiled")


def in_a_list(view: View, knobs: Knobs) -> float:
    return [queue(view, knobs)][0]


def true_cost(view: View, cost: float, knobs: Knobs) -> float:  # noqa: ARG001
    return [cost][0]


def test_who_keeps_its_word_and_cannot_be_compiled_is_told_why() -> None:
    for policy in (Policy(in_a_list, power="max", lead=None), OraclePolicy(true_cost, power="optimal")):
        compiled, why_not = check_policy(policy, rounds=30)
        assert not compiled and why_not is not None and "cannot be compiled" in why_not


def test_all_that_a_policy_may_have_keeps_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checker, "check_engines", lambda config, *_: Engines(True, str(config.policy.settings))
    )  # tests/policies
    policy = Policy(by_state, power="optimal", settings=Weight, state=Mean, observe=right)
    assert check_policy(policy, {"weight": 3.0}).why_not == "{'weight': 3.0}"
    with pytest.raises(FedtwinError, match=r"policy\.settings\.wait is not a setting \(did you mean weight\?\)"):
        check_policy(policy, {"wait": 3.0})
    check_policy(Policy(queue, power="optimal", lead=good_lead))


def test_what_is_no_policy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _refused(queue, "is a function, not a name nor a fedtwin.Policy")
    _refused("cu-ubc", r"policy\.name = 'cu-ubc' ")
    (tmp_path / "my_checked.py").write_text("POLICY = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    _refused("my_checked:POLICY", r"policy\.name = 'my_checked:POLICY' is a int, not a fedtwin\.policies\.Policy")
