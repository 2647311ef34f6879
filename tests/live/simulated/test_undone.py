"""The four silent stalls that were mended one by one: each is found again when its fix is undone."""

import pytest

from tests.live.simulated.faults import Fault, Schedule
from tests.live.simulated.schedule import play
from tests.live.simulated.undone import FIXES, first_found


def one(at_s: float, what: str, lasts_s: float = 1.0, devices: int = 2) -> Schedule:
    return Schedule((Fault(at_s, what, "broker", lasts_s, 0.5),), devices)


SCHEDULES = {
    "pause": one(1.2, "pause", lasts_s=4.0, devices=1),
    "store": one(2.0, "lost store"),
    "consumer": one(2.0, "deleted consumer"),
    "frozen": one(2.0, "frozen stream"),
    "settings": one(2.0, "other subjects"),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_fault_stalls_the_fleet_without_its_fix_and_only_then(name: str) -> None:
    assert play(1, SCHEDULES[name]).trouble is None
    with FIXES[name].undone():
        assert "no upload of a new task was mixed in" in str(play(1, SCHEDULES[name]).trouble)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIXES)
def test_every_fix_that_is_undone_is_found(name: str) -> None:
    assert first_found(FIXES[name]) is not None
