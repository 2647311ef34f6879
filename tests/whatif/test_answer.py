"""Intervals hold a value more of the same kind in nine cases of ten, whatever its distribution; answers are plain JSON."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.whatif.answer import NUMBERS, Interval, Played, difference_of, future_of, interval_of

CASES = 1200


@pytest.mark.parametrize("worlds", [5, 18, 19, 40, 100])
def test_an_interval_holds_the_next_value_in_nine_cases_of_ten(worlds: int) -> None:
    random = np.random.default_rng(worlds)
    draw = random.standard_normal if worlds < 19 else random.standard_exponential
    inside = 0
    for values in draw((CASES, worlds + 1)):
        found = interval_of(values[:-1])
        assert found.low is not None and found.high is not None
        inside += found.low <= values[-1] <= found.high
    assert abs(inside / CASES - 0.9) < 4 * (0.09 / CASES) ** 0.5


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60))
def test_the_interval_is_in_order_and_scales(values: list[float]) -> None:
    found, doubled = interval_of(np.array(values)), interval_of(2.0 * np.array(values))
    assert found.low is not None and found.high is not None and found.low <= found.high
    assert doubled == Interval(*(None if side is None else 2.0 * side for side in (found.mean, found.low, found.high)))


def test_one_world_leaves_no_doubt_and_none_nothing() -> None:
    assert interval_of(np.array([0.3])) == Interval(0.3, 0.3, 0.3)
    assert interval_of(np.array([np.nan, np.nan])) == Interval(None, None, None)
    assert interval_of(np.array([np.nan, 0.3])) == Interval(0.3, 0.3, 0.3)


def a_world(number: float) -> Played:
    curve = np.array([number, 2.0 * number])
    return Played(curve, curve, curve, np.full(len(NUMBERS), number))


def test_a_difference_is_taken_world_by_world() -> None:
    first = [a_world(float(k)) for k in range(50)]
    second = [a_world(float(k) + 1.0) for k in range(50)]
    assert difference_of(first, second).mean_cost == Interval(1.0, 1.0, 1.0)
    future = future_of(first)
    assert future.mean_cost.low is not None and future.mean_cost.low < 3.0
    assert future.curves["clock_s"] == [24.5, 49.0]
    assert future.curves["mean_cost"]["mean"] == [24.5, 49.0]


def test_worlds_are_equal_to_the_last_bit_or_not() -> None:
    assert a_world(0.1) == a_world(0.1)
    assert a_world(0.1) != a_world(np.nextafter(0.1, 1.0))
