"""A device that falls silent with a task: given up at its deadline, its channel goes to another, its late upload is judged."""

import json
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.live.brokers import frozen
from tests.live.plant import events_of, ledger_of, plant


@pytest.mark.parametrize("late", ["mix", "refuse"])
def test_a_silent_device(tmp_path: Path, late: str) -> None:
    with plant(tmp_path) as fleet:
        fleet.new_edge(
            "--rounds", 100_000, "--time-scale", 2, fleet__devices=2, fleet__channels=1, live__late=late,
            live__deadline_margin_s=1.5, live__deadline_factor=1.5, live__heartbeat_s=0.2,
        )  # fmt: skip  # slowly, so that the device is stopped before it is done
        url = fleet.url()
        for name in ("d0", "d1"):
            fleet.device(name, url, "--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)
        fleet.wait_for("applied", count=2)
        before = len([event for event in events_of(fleet.run, "dispatched") if event["device"] == 0])
        sent = fleet.wait_for("dispatched", lambda event: event["device"] == 0, count=before + 1)
        fleet.processes["d0"].send_signal(signal.SIGSTOP)

        given_up = fleet.wait_for("given-up")
        assert (given_up["token"], given_up["reason"]) == (sent["token"], "the deadline has passed")
        assert given_up["status"] == "offline" and given_up["at_s"] >= sent["deadline_s"]
        assert sent["deadline_s"] == pytest.approx(sent["at_s"] + 1.5 * (sent["compute_s"] + sent["upload_s"]) + 0.75)
        assert given_up["cost"] >= max(sent["cost"], 1.0)
        following = fleet.wait_for("dispatched", lambda event: event["at_s"] > given_up["at_s"])
        assert following["device"] == 1
        fleet.wait_for("applied", lambda event: event["token"] == following["token"])

        fleet.processes["d0"].send_signal(signal.SIGCONT)
        if late == "mix":
            applied = fleet.wait_for("applied", lambda event: event["token"] == sent["token"])
            assert applied["late"] and applied["staleness"] >= 1
        else:
            refused = fleet.wait_for("refused", lambda event: event["what"] == "result")
            assert refused["reason"] == "late: the task had been given up"
            assert (refused["name"], refused["token"]) == ("d0", sent["token"])
        fleet.wait_for("status", lambda event: event["device"] == 0 and event["status"] == "idle")
        assert fleet.stopped("edge") == 0
        applied_tokens = [event["token"] for event in events_of(fleet.run, "applied")]
        assert len(applied_tokens) == len(set(applied_tokens)) and (sent["token"] in applied_tokens) == (late == "mix")
        outcomes = [row["outcome"] for row in pq.read_table(fleet.run / "tasks.parquet").to_pylist()]
        assert outcomes.count("late" if late == "mix" else "given up: the deadline has passed") == 1


def test_a_device_that_waits_for_others_is_not_silent(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        fleet.new_edge(
            "--rounds", 100_000, fleet__devices=3, fleet__channels=1, live__heartbeat_s=0.2, live__offline_after_s=2.0
        )  # fmt: skip
        url = fleet.url()
        for name in ("d0", "d1"):
            fleet.device(name, url, "--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)
        fleet.wait_for("joined", count=2)
        time.sleep(2.5)
        fleet.device("d2", url, "--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)
        fleet.wait_for("applied", count=3)
        assert not events_of(fleet.run, "status")


def test_a_device_that_fails_at_once_does_not_use_up_the_rounds(tmp_path: Path) -> None:
    """It is asked again when it is heard again."""
    beat_s = 0.5
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 100_000, fleet__devices=1, fleet__channels=1, live__heartbeat_s=beat_s)
        fleet.device("d0", fleet.url(), "--command", "false", "--samples", 40)
        first, last = fleet.wait_for("given-up"), fleet.wait_for("given-up", count=4)
        assert first["reason"] == "failed: false ended with 1: no message" and first["status"] == "offline"
        assert last["at_s"] - first["at_s"] > 2 * beat_s


def test_an_edge_server_that_pauses_does_not_make_its_devices_pay(tmp_path: Path) -> None:
    """Uploads that waited for it come before deadlines, and nobody was silent."""
    with plant(tmp_path) as fleet:
        fleet.new_edge(
            "--rounds", 100_000, fleet__devices=2, fleet__channels=1, live__late="refuse", live__deadline_margin_s=2.0,
            live__heartbeat_s=0.2, live__offline_after_s=2.0,
        )  # fmt: skip
        url = fleet.url()
        for name in ("d0", "d1"):
            fleet.device(name, url, "--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)
        fleet.wait_for("applied", count=2)
        fleet.wait_for("dispatched", count=len(events_of(fleet.run, "dispatched")) + 1)
        with frozen(fleet.processes["edge"].pid):
            sent, now_s = events_of(fleet.run, "dispatched")[-1], ledger_of(fleet.run)[-1]["at_s"]
            time.sleep(sent["deadline_s"] - now_s + 3.0)
        fleet.wait_for("applied", count=len(events_of(fleet.run, "applied")) + 3)
        assert not events_of(fleet.run, "given-up") and not events_of(fleet.run, "refused")
        assert not events_of(fleet.run, "status")


@pytest.mark.slow
def test_a_broker_that_pauses_does_not_make_the_devices_pay(tmp_path: Path) -> None:
    """Deadlines that pass while it stands still wait for what it has, also before anybody has noticed."""
    with plant(tmp_path) as fleet:
        fleet.new_edge(
            "--rounds", 100_000, fleet__devices=4, fleet__channels=4, live__late="refuse", live__deadline_margin_s=2.0,
            live__heartbeat_s=0.2, live__offline_after_s=60.0, live__ask_timeout_s=30.0,
        )  # fmt: skip
        url = fleet.url()
        for number in range(4):
            fleet.device(f"d{number}", url, "--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)
        fleet.wait_for("applied", count=8)
        broker = json.loads((fleet.run / "broker" / "broker.json").read_text())["pid"]
        for _ in range(3):
            applied = len(events_of(fleet.run, "applied"))
            with frozen(broker):
                time.sleep(6.0)
            fleet.wait_for("applied", count=applied + 8)
        assert not events_of(fleet.run, "given-up") and not events_of(fleet.run, "refused")
