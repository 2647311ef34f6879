"""Schedules of faults by their numbers. ``python -m tests.live.simulated SEED`` shows one from its first word."""

from collections import Counter
from typing import Any

import pytest

from tests.live.simulated import faults
from tests.live.simulated.faults import drawn
from tests.live.simulated.schedule import play

IN_ONE_TEST = 20
QUICK, ALL = 140, 10_000
FEATURES = {
    "small segments": 0.7,
    "a standby of the folder": 0.08,
    "a standby with the ledger as a stream": 0.1,
    "synchronous rounds": 0.1,
    "synchronous rounds with a timeout": 0.05,
    "evaluations": 0.1,
    "models as objects": 0.1,
    "a hostile device": 0.15,
    "a broker of somebody else's": 0.25,
}
"""The least share of schedules that have them."""


FOUND = {
    393: "a broker whose disk was still full when it was started again at the edge server's beginning",
    704: "a simulated broker that gave messages to a subscription its consumer was not made for",
    1713: "a line sent after one that was turned away, with the very number that another's line left to it",
    4866: "a full disk while the files of a run are fetched from the broker",
    6473: "a primary that was away, and took the consumer of the one that had taken over",
    8839: "an upload mixed in after the last evaluation",
}
"""Each has found a defect on some tree, beyond the quick ones."""


def seeds(first: int, last: int) -> list[range]:
    return [range(begin, begin + IN_ONE_TEST) for begin in range(first, last, IN_ONE_TEST)]


def hold(numbers: range) -> None:
    failed = {seed: trouble for seed in numbers if (trouble := play(seed).trouble) is not None}
    assert not failed


def test_the_quick_ones_have_every_feature_and_every_fault() -> None:
    has, kinds = Counter[str](), Counter[str]()
    for seed in range(QUICK):
        schedule = drawn(seed)
        has.update(schedule.has)
        kinds.update(schedule.kinds)
    assert has.keys() == FEATURES.keys()
    assert not {what: count for what, count in has.items() if count < FEATURES[what] * QUICK}
    devices, edge = (
        (f"{what} of device" for what in faults.LIVES),
        (f"{what} of edge" for what in (*faults.LIVES, *faults.EDGE)),
    )
    others = (f"{what} of weather" for what in faults.WEATHER), (f"{what} of broker" for what in faults.BROKER)
    assert set().union(devices, edge, *others) <= kinds.keys()
    assert {what.rpartition(" ")[2] for what in kinds} == {"weather", "edge", "broker", "device", "standby", "evaluator"}


@pytest.mark.parametrize("numbers", seeds(0, QUICK), ids=str)
def test_nothing_is_lost_or_doubled_and_uploads_resume(numbers: range) -> None:
    hold(numbers)


@pytest.mark.parametrize("compress", ["top-k", "int8", "float16"])
@pytest.mark.parametrize(
    "numbers", [range(4), *(pytest.param(numbers, marks=pytest.mark.slow) for numbers in seeds(0, 500))], ids=str
)
def test_nor_is_any_of_compressed_uploads(compress: str, numbers: range) -> None:
    settings: dict[str, Any] = {"learning.compress": compress}
    failed = {seed: play(seed, **settings).trouble for seed in numbers}
    assert not any(failed.values()), failed


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_is_not_there_again(seed: int) -> None:
    hold(range(seed, seed + 1))


@pytest.mark.slow
@pytest.mark.parametrize("numbers", seeds(QUICK, ALL), ids=str)
def test_nothing_is_lost_or_doubled_and_uploads_resume_ever(numbers: range) -> None:
    hold(numbers)
