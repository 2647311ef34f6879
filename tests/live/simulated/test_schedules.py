"""Schedules of faults by their numbers. ``python -m tests.live.simulated SEED`` shows one from its first word."""

import pytest

from tests.live.simulated.schedule import play

IN_ONE_TEST = 20
QUICK, ALL = 140, 10_000


def seeds(first: int, last: int) -> list[range]:
    return [range(begin, begin + IN_ONE_TEST) for begin in range(first, last, IN_ONE_TEST)]


def hold(numbers: range) -> None:
    failed = {seed: trouble for seed in numbers if (trouble := play(seed).trouble) is not None}
    assert not failed


@pytest.mark.parametrize("numbers", seeds(0, QUICK), ids=str)
def test_nothing_is_lost_or_doubled_and_uploads_resume(numbers: range) -> None:
    hold(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", seeds(QUICK, ALL), ids=str)
def test_nothing_is_lost_or_doubled_and_uploads_resume_ever(numbers: range) -> None:
    hold(numbers)
