"""Synchronous rounds by real processes: killed in the middle of one they lose and repeat nothing, and decide as simulated."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedtwin.config import load_config
from fedtwin.records import read_rounds
from fedtwin.sim import simulate
from tests.live.chaos import Fleet, Ledger, change_ledger, copy_without_broker, places, queue_lost
from tests.live.plant import plant
from tests.live.sync_check import check_rounds

CHANNELS, SELECTIONS = 2, 160
SYNC = {"policy.name": "Sy-fairness", "run.sync_timeout_s": 0.5}


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """Edge server, broker and a device are killed one after the other, each while a round is open."""
    fleet = Fleet(tmp_path_factory.mktemp("rounds"), rounds=SELECTIONS, devices=3, seed=5, **SYNC)
    try:
        for target in ("edge", "broker", "device-1", "edge", "device-0", "broker"):
            fleet.wait_for_uploads(8)
            fleet.wait_for_an_open_round()
            fleet.kill(target)
            fleet.revive()
        fleet.torture(0, 240.0)
    finally:
        fleet.close()
    return fleet


def test_rounds_survive_kills_of_everything(survivor: Fleet) -> None:
    counts = check_rounds(survivor.folder, CHANNELS)
    assert counts["tasks"] - counts["given_up"] == SELECTIONS and counts["applied"] > SELECTIONS / 2
    assert counts["resumed"] == 2 and counts["killed in a round"] >= 1


def applied_twice(ledger: Ledger) -> None:
    place = places(ledger, "applied")[9]
    ledger.insert(place + 1, ledger[place])


def closed_twice(ledger: Ledger) -> None:
    place = places(ledger, "closed")[3]
    ledger.insert(place + 1, ledger[place])


def upload_forgotten(ledger: Ledger) -> None:
    del ledger[places(ledger, "applied")[9]]


def round_forgotten(ledger: Ledger) -> None:
    del ledger[places(ledger, "closed")[3]]


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (applied_twice, "a task ended twice"),
        (closed_twice, "a round was closed before its end"),
        (upload_forgotten, "a round was closed before its end"),
        (round_forgotten, "opened in another one"),
        (queue_lost, "a queue was lost"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_check_finds_a_broken_promise(
    survivor: Fleet, tmp_path: Path, tamper: Callable[[Ledger], None], found: str
) -> None:
    copy_without_broker(survivor.folder, tmp_path)
    change_ledger(tmp_path, tamper)
    with pytest.raises(AssertionError, match=found):
        check_rounds(tmp_path, CHANNELS)


def test_emulated_devices_play_the_rounds_of_the_simulator(tmp_path: Path) -> None:
    """With real messages and sleeps, some of them longer than the timeout."""
    settings = {
        "fleet.devices": 4,
        "fleet.channels": 3,
        "run.rounds": 18,
        "run.seed": 3,
        "run.sync_timeout_s": 0.55,
        "policy.name": "Sy-fairness",
    }
    simulated = simulate(load_config(overrides=settings))
    assert simulated.summary.drops
    with plant(tmp_path) as fleet:
        named = {name.replace(".", "__"): value for name, value in settings.items()}
        fleet.new_edge(**named, live__clock_tolerance_s=5.0, live__ask_timeout_s=20, live__time_scale=2.0)
        for number, samples in enumerate(simulated.devices["samples"].to_pylist()):
            emulated = ("--emulate", number, "--no-training", "--samples", samples)
            fleet.device(f"device-{number}", fleet.url(), *emulated)
        assert fleet.ended("edge") == 0
        rounds, summary = read_rounds(fleet.run), json.loads((fleet.run / "summary.json").read_text())
    for name in ("round", "device", "gain", "cpu_hz", "index", "queue", "total_queue", "declined", "dropped"):
        assert rounds[name].to_pylist() == simulated.rounds[name].to_pylist(), name
    assert summary["drops"] == simulated.summary.drops
    assert summary["mean_cost"] == pytest.approx(simulated.summary.mean_cost, rel=1e-2)


def test_who_is_dropped_stops_and_takes_the_next_round(tmp_path: Path) -> None:
    """Its upload would take half a minute: a device that did not hear of the end of the round would be busy."""
    far = {"radio__update_bits": 5e8, "policy__name": "Sy-fairness", "fleet__devices": 1, "fleet__channels": 1}
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 3, **far, run__sync_timeout_s=0.5, live__ask_timeout_s=20)
        fleet.device("device-0", fleet.url(), "--emulate", 0, "--no-training", "--samples", 80)
        assert fleet.ended("edge") == 3, "no upload was mixed in"
        summary = json.loads((fleet.run / "summary.json").read_text())
        assert fleet.log("device-0").count("dropped: the round has ended") >= 2
    assert summary["drops"] == summary["rounds"] == 3 and summary["declines"] == 0
    assert summary["mean_time_s"] == 0.5 and summary["wasted_energy_j"] > 0.0
