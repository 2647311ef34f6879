"""Devices outlive edge servers and runs: whatever comes next is joined with its own settings."""

import os
import signal
import time
from pathlib import Path
from statistics import median

import pytest

from fedtwin.config import load_config
from fedtwin.live.device.delivery import PUBLISH_TIMEOUT_S
from fedtwin.world.world import World
from tests.live.brokers import frozen, own_port, running
from tests.live.plant import events_of, ledger_of, plant, until

EMULATED = ("--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)


def test_a_device_that_outlives_its_run_joins_the_next_with_its_settings(tmp_path: Path) -> None:
    port = own_port()
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 5, "--listen", f"127.0.0.1:{port}", fleet__devices=2, fleet__channels=2)
        for number in range(2):
            fleet.device(f"d{number}", fleet.url(), "--no-training", "--samples", 40, "--emulate", number)
        assert fleet.ended("edge") == 0
        first = ledger_of(fleet.run)
        fleet.run = tmp_path / "next"
        fleet.new_edge(
            *("--rounds", 20, "--listen", f"127.0.0.1:{port}", "--time-scale", 0.5),
            fleet__devices=2, fleet__channels=2, run__seed=7,
        )  # fmt: skip
        assert fleet.ended("edge") == 0
        fresh = World(load_config(fleet.run / "config.toml"))
        sent = events_of(fleet.run, "dispatched")
        assert len(first) > 5 and len(sent) > 20 and not events_of(fleet.run, "refused")
        assert all(event["gain"] == fresh.draw(event["device"], event["round"], 0.0).gain for event in sent)
        said_s = {event["token"]: event["compute_s"] + event["upload_s"] for event in sent}
        took = [event["elapsed_s"] / said_s[event["token"]] for event in events_of(fleet.run, "applied")]
        assert 0.9 < median(took) < 1.5, "by the clock of the next run; with that of the first one it would be 2"


def test_the_normal_end_of_a_run_is_no_warning_to_a_device_and_a_lost_broker_is(tmp_path: Path) -> None:
    """The broker of the edge server ends with it; the device has been told, and waits for the next run."""
    port = own_port()
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 5, "--listen", f"127.0.0.1:{port}", fleet__devices=1, fleet__channels=1)
        fleet.device("d0", fleet.url(), *EMULATED)
        assert fleet.ended("edge") == 0
        until(lambda: "unexpected EOF" in fleet.log("d0"), "the device has lost the broker")
        assert " warning " not in fleet.log("d0") and "the edge server has ended" in fleet.log("d0"), fleet.log("d0")
        fleet.run = tmp_path / "next"
        fleet.new_edge("--rounds", 100_000, "--listen", f"127.0.0.1:{port}", fleet__devices=1, fleet__channels=1)
        fleet.wait_for("applied")
        fleet.kill("edge")
        os.kill(int(fleet.broker_record()["pid"]), signal.SIGKILL)
        until(lambda: " warning " in fleet.log("d0"), "the device warns of the lost broker")
        assert fleet.stopped("d0") == 0


def test_a_place_that_the_fleet_does_not_have(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 5, fleet__devices=2, fleet__channels=2)
        fleet.device("d2", fleet.url(), "--no-training", "--samples", 40, "--emulate", 2)
        assert fleet.ended("d2") == 2
        assert fleet.log("d2").strip() == "error: --emulate 2 is not allowed: the run's fleet has devices 0 to 1."


def test_a_measured_link_is_predicted_on_the_clock_of_the_run(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        fleet.new_edge(
            *("--rounds", 30, "--time-scale", 0.02), fleet__devices=1, fleet__channels=1, objective__max_time_s=100.0,
            objective__max_energy_j=100.0,
        )  # fmt: skip
        fleet.device("d0", fleet.url(), "--no-training", "--samples", 40)
        assert fleet.ended("edge") == 0
        fleet.edge("--state", fleet.run)
        assert fleet.ended("edge") == 0 and "is finished" in fleet.log("edge"), "a service is not started again and again"
        predicted = median(event["upload_s"] for event in events_of(fleet.run, "dispatched")[5:])
        assert 0.3 < predicted / median(event["link_s"] for event in events_of(fleet.run, "applied")) < 3.0


def test_a_fleet_in_a_file_is_not_emulated_by_whoever_has_no_such_file(tmp_path: Path) -> None:
    table = tmp_path / "fleet.csv"
    table.write_text("distance_m,samples,cpu_hz\n100,50,1e9\n200,60,2e9\n", encoding="utf-8")
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 5, fleet__file=table, fleet__channels=2)
        fleet.device("d0", fleet.url(), "--no-training", "--samples", 40, "--emulate", 0)
        assert fleet.ended("d0") == 2
        assert "--emulate 0 is not possible: the run's fleet is in a file" in fleet.log("d0")
        assert fleet.stopped("edge") == 0
        fleet.edge("--resume", fleet.run, "--run", "other")
        assert fleet.ended("edge") == 2
        assert "--run 'other' is not the name of the run" in fleet.log("edge")


@pytest.mark.slow
def test_a_new_edge_server_that_is_frozen_when_its_devices_say_hello(tmp_path: Path) -> None:
    """They say it again until they are answered."""
    settings = {"fleet__devices": 1, "fleet__channels": 1, "live__heartbeat_s": 0.3}
    with running(tmp_path) as broker, plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 3, "--server", broker.url, **settings)
        fleet.device("d0", broker.url, *EMULATED)
        assert fleet.ended("edge") == 0
        fleet.run, before = tmp_path / "again", fleet.log("edge").count("serving")
        edge = fleet.new_edge("--rounds", 3, "--server", broker.url, **settings)
        until(lambda: fleet.log("edge").count("serving") > before, "serving")
        with frozen(edge.pid):
            time.sleep(PUBLISH_TIMEOUT_S + 1.5)
        assert fleet.ended("edge") == 0
