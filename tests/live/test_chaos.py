"""Processes are killed at random moments; the ledger keeps every promise. And whoever breaks one is found out."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.chaos import Fleet, Ledger, change_ledger, check, copy_without_broker, places, queue_lost
from tests.live.chaos_plan import FULL_DISKS_A_KILL, KILLS, PAUSES_A_KILL, counted, schedule
from tests.live.chaos_storm import stormed


def tortured(folder: Path, *, seed: int, kills: int, rounds: int, devices: int, limit_s: float) -> Fleet:
    fleet = Fleet(folder, rounds, devices, seed)
    try:
        fleet.torture(kills, limit_s)
    finally:
        fleet.close()
    return fleet


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return tortured(tmp_path_factory.mktemp("chaos"), seed=1, kills=10, rounds=1000, devices=3, limit_s=300.0)


def test_a_run_survives_ten_kills(survivor: Fleet) -> None:
    counts = check(survivor.folder)
    assert sum(survivor.kills.values()) == 10
    assert counts["resumed"] >= 1 and counts["applied"] > 500


@pytest.mark.slow
def test_a_run_survives_a_hundred_kills(tmp_path: Path) -> None:
    fleet = tortured(tmp_path, seed=7, kills=120, rounds=8000, devices=5, limit_s=1200.0)
    counts = check(tmp_path)
    assert sum(fleet.kills.values()) >= 100
    assert fleet.kills["edge"] >= 10 and fleet.kills["broker"] >= 10
    assert all(fleet.kills.get(f"device-{number}", 0) for number in range(5))
    assert counts["tasks"] > 2000 and counts["resumed"] >= 10 and counts["given_up"] > 0


@pytest.mark.slow
def test_a_run_survives_a_thousand_kills_with_pauses_empty_stores_and_full_disks(tmp_path: Path) -> None:
    """Edge server, standby, broker and devices; uploads of new tasks are mixed in after every step."""
    try:
        storm, counts = stormed(tmp_path, seed=14, kills=1000)
    except PermissionError as error:
        pytest.skip(str(error))
    done = storm.done
    assert sum(number for (what, _), number in done.items() if what == "kill") == 1000
    assert all(done["kill", whom] >= 100 for whom in KILLS) and all(done["pause", whom] >= 15 for whom in PAUSES_A_KILL)
    assert done["empty store", "broker"] >= 10 and all(done["full disk", whom] >= 5 for whom in FULL_DISKS_A_KILL)
    assert counts["resumed"] >= 100 and counts["applied"] > 1000 and counts["uploaded"] > 1000 and counts["given_up"] > 0


def test_a_schedule_has_the_kills_it_is_asked_for_and_is_the_same_again() -> None:
    steps = schedule(14, 1000)
    assert steps == schedule(14, 1000) != schedule(15, 1000)
    assert sum(number for (what, _), number in counted(steps).items() if what == "kill") == 1000
    assert not steps[-1].rushed and any(len(step.faults) > 2 for step in steps)


def doubled(ledger: Ledger) -> None:
    place = places(ledger, "applied")[5]
    ledger.insert(place + 1, ledger[place])


def dropped(ledger: Ledger) -> None:
    del ledger[places(ledger, "applied")[5]]


def dropped_last(ledger: Ledger) -> None:
    """No later version gives it away."""
    del ledger[places(ledger, "applied")[-1]]


def version_skipped(ledger: Ledger) -> None:
    for place in places(ledger, "applied")[5:]:
        ledger[place]["version"] += 1


def handed_out_twice(ledger: Ledger) -> None:
    first, second = places(ledger, "dispatched")[:2]
    ledger[second]["token"] = ledger[first]["token"]


def round_skipped(ledger: Ledger) -> None:
    for place in places(ledger, "asked"):
        ledger[place]["round"] += ledger[place]["round"] > 10


def clock_turned_back(ledger: Ledger) -> None:
    ledger[-1]["at_s"] = 0.0


def upload_of_another_round(ledger: Ledger) -> None:
    """Only the model itself shows that another update was mixed in."""
    last = ledger[places(ledger, "applied")[-1]]["token"]
    ledger[next(place for place in places(ledger, "dispatched") if ledger[place]["token"] == last)]["round"] -= 7


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (doubled, "applied twice"),
        (dropped, "the version is not the next one|an old model was handed out"),
        (dropped_last, "Not equal to tolerance|lost after"),
        (version_skipped, "the version is not the next one"),
        (handed_out_twice, "a token was used twice"),
        (queue_lost, "a queue was lost"),
        (round_skipped, "a round was skipped"),
        (clock_turned_back, "the clock went back"),
        (upload_of_another_round, "Not equal to tolerance"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_check_finds_a_broken_promise(
    survivor: Fleet, tmp_path: Path, tamper: Callable[[Ledger], None], found: str
) -> None:
    copy_without_broker(survivor.folder, tmp_path)
    check(tmp_path)
    change_ledger(tmp_path, tamper)
    with pytest.raises(AssertionError, match=found):
        check(tmp_path)


def test_the_check_finds_an_acknowledged_upload_that_was_lost(survivor: Fleet, tmp_path: Path) -> None:
    copy_without_broker(survivor.folder, tmp_path)
    with (tmp_path / "device-0.log").open("a", encoding="utf-8") as log:
        log.write(json.dumps({"message": "uploaded", "token": "f" * 32}) + "\n")
    with pytest.raises(AssertionError, match="lost after they were acknowledged"):
        check(tmp_path)
