"""A limit that is named does let most of a fleet take part, and no value of three digits below it does."""

import pytest

from fedtwin.formulas.admitting import enough_for_most, round_up


@pytest.mark.parametrize(("count", "enough"), [(1, 1), (2, 2), (9, 9), (10, 9), (11, 10), (20, 18)])
def test_nine_of_ten_devices_need_no_more_and_of_fewer_than_ten_all(count: int, enough: int) -> None:
    assert enough_for_most([float(number) for number in range(count, 0, -1)]) == enough


@pytest.mark.parametrize(
    ("value", "rounded"), [(1.2345, 1.24), (1.23, 1.23), (999.1, 1000.0), (0.00012301, 0.000124), (5e6, 5e6)]
)
def test_values_are_rounded_up_to_three_digits(value: float, rounded: float) -> None:
    assert round_up(value) == pytest.approx(rounded, rel=1e-12) and round_up(value) >= value
