import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.policies import Knobs, View, cu_ucb, fairness, genie, queue_only, random_choice

KNOBS = Knobs(v=1e5, bonus_scale=1.0, seed=3, min_mean_samples=1.0)


def view(**changes: Any) -> View:
    base = View(100, 2, 80.0, 7, 7, 0.9, 12.0, 1e-12, 0.2)
    return base._replace(**changes)


def test_cu_ucb_is_the_papers_equation() -> None:
    many = view(observations=10**6, round=10**4)
    bonus = math.sqrt(3 * math.log(10**4) / (2 * 10**6))
    assert cu_ucb.score(many, KNOBS) == pytest.approx(1e5 * (0.9 - bonus) - 12.0 * 80.0)


def test_an_unknown_device_and_a_wide_bonus_cost_nothing() -> None:
    assert cu_ucb.score(view(observations=0), KNOBS) == -12.0 * 80.0
    assert cu_ucb.score(view(observations=1), KNOBS) == -12.0 * 80.0
    assert cu_ucb.optimistic_cost(1, 1, 0.4, 1.0) == 0.4, "ln 1 = 0: no bonus in the first round"


@given(scale=st.floats(0, 10), more=st.floats(0, 10))
def test_a_wider_bonus_is_more_optimistic(scale: float, more: float) -> None:
    narrow = cu_ucb.optimistic_cost(1000, 500, 0.5, scale)
    assert 0.0 <= cu_ucb.optimistic_cost(1000, 500, 0.5, scale + more) <= narrow <= 0.5


def test_the_other_policies() -> None:
    assert queue_only.score(view(), KNOBS) == -960.0
    assert fairness.score(view(), KNOBS) == 7.0
    assert genie.score(view(), 0.25, KNOBS) == 25_000.0 - 960.0
    assert genie.score(view(), math.inf, KNOBS._replace(v=0.0)) == math.inf


def test_random_prefers_nobody() -> None:
    wins = [0] * 5
    for round_ in range(5000):
        wins[min(range(5), key=lambda n: random_choice.score(view(round=round_, device=n), KNOBS))] += 1
    assert min(wins) > 850 and max(wins) < 1150
