import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedtwin.experiments.analysis.statistics import mean_interval, paired_difference

VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=30).filter(lambda values: max(values) - min(values) > 1e-3)


@given(values=VALUES)
def test_interval_is_students(values: list[float]) -> None:
    ours = mean_interval(values)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-9)
    assert ours.low <= ours.mean <= ours.high


@given(values=VALUES)
def test_paired_difference_is_the_paired_t_test(values: list[float]) -> None:
    zeros = [0.0] * len(values)
    ours = paired_difference("a", "b", values, zeros)
    assert ours.p_value == pytest.approx(stats.ttest_rel(values, zeros).pvalue, rel=1e-9, abs=1e-300)
    assert ours.significant == (not ours.low <= 0 <= ours.high)


def test_one_seed_proves_nothing() -> None:
    pair = paired_difference("a", "b", [1.0], [0.0])
    assert pair.p_value is None and not pair.significant
    assert math.isnan(mean_interval([3.0]).low) and mean_interval([3.0]).mean == 3.0


def test_equal_runs_do_not_differ() -> None:
    assert paired_difference("a", "b", [1.0, 2.0], [1.0, 2.0]).p_value == 1.0
    assert paired_difference("a", "b", [2.0, 3.0], [1.0, 2.0]).p_value == 0.0
