"""Leads: for as long as a policy says, the device behind does not pass the one ahead, in floating point."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtwin.policies import Knobs, Policy, View, load_policy
from fedtwin.registry import POLICIES
from fedtwin.twin.state import queue_at

WITH_LEAD = [name for name in POLICIES if isinstance(policy := load_policy(name), Policy) and policy.lead is not None]
ROUNDS = st.integers(1, 50) | st.integers(1, 10**9)
PLENTY = 10**6


class Known:
    """A device that is not selected for a while."""

    def __init__(self, samples: float, observations: int, mean_cost: float, queue: float, queue_round: int) -> None:
        self.samples, self.observations, self.mean_cost = samples, observations, mean_cost
        self.queue, self.queue_round = queue, queue_round

    def view(self, round_: int, d_min: float) -> View:
        queue = queue_at(self.queue, self.queue_round, round_, d_min)
        nothing = math.nan
        return View(round_, 0, self.samples, self.observations, self.observations, self.mean_cost, queue, nothing, nothing)


def known(round_: int) -> st.SearchStrategy[Known]:
    return st.builds(
        Known,
        st.sampled_from([70.0, 71.0, 85.0, 100.0]),
        st.integers(0, 3) | st.integers(0, 500),
        st.floats(0.0, 1.0),
        st.sampled_from([0.0, 0.0, 1.0]) | st.floats(0, 300),
        st.integers(max(1, round_ - 1000), round_ + 1),
    )


@pytest.mark.parametrize("name", WITH_LEAD)
@given(data=st.data(), round_=ROUNDS, bonus=st.sampled_from([0.0, 0.01, 1.0]), v=st.sampled_from([0.0, 1e3, 1e5, 1e8]))
@settings(max_examples=300)
def test_a_lead_lasts_as_long_as_the_policy_says(name: str, data: st.DataObject, round_: int, bonus: float, v: float) -> None:
    policy = load_policy(name)
    assert isinstance(policy, Policy) and policy.lead is not None
    d_min = data.draw(st.sampled_from([0.0, 4e-5, 1.0, 2.5]))
    knobs = Knobs(v, bonus, 1, d_min)
    a, b = data.draw(known(round_)), data.draw(known(round_))

    def scores(at: int) -> tuple[float, float]:
        return policy.score(a.view(at, d_min), knobs), policy.score(b.view(at, d_min), knobs)

    first, second = scores(round_)
    if second < first:
        a, b, first, second = b, a, second, first
    lasts = policy.lead(a.view(round_, d_min), b.view(round_, d_min), second - first, knobs)
    assert lasts >= 0
    if second == first:
        return
    last = round_ + int(min(lasts, PLENTY))
    some = {
        round_,
        last,
        *(random.Random(0).randint(round_, last) for _ in range(40)),
        *range(round_, min(last, round_ + 20) + 1),
    }
    for at in some:
        ahead, behind = scores(at)
        assert ahead < behind, (at, lasts)


@pytest.mark.parametrize("name", WITH_LEAD)
def test_a_policy_with_a_lead_does_not_look_at_number_gain_and_compute_time(name: str) -> None:
    policy = load_policy(name)
    assert isinstance(policy, Policy)
    view = View(50, 3, 80.0, 4, 4, 0.4, 12.0, math.nan, math.nan)
    other = view._replace(device=9, gain=1e-11, compute_s=0.2)
    knobs = Knobs(1e5, 1.0, 1, 1.0)
    assert policy.score(view, knobs) == policy.score(other, knobs)
