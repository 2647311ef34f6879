"""SIGTERM ends everything in good order, and a run goes on where it was."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.conftest import run_cli
from tests.live import plant as plants
from tests.live.plant import Plant, events_of, ledger_of, plant, until, write_model

ROUNDS = 100
STOPPED_AT_ITS_RECORDS = """
import os, signal
from fedtwin.cli import main
from fedtwin.live.server import hosting
write_records = hosting.write_records
def stopped(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    return write_records(*arguments)
hosting.write_records = stopped
main()
"""
EMULATED = ("--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)


def check_it_was_stopped(fleet: Plant, stops: int) -> None:
    ledger = ledger_of(fleet.run)
    assert ledger[-1]["kind"] == "stopped" and ledger[-1]["finished"] is False
    assert len(events_of(fleet.run, "stopped")) == stops
    assert not (fleet.run / "summary.json").exists() and not (fleet.run / ".lock").exists()
    so_far = json.loads((fleet.run / "summary-so-far.json").read_text(encoding="utf-8"))
    newest = max((fleet.run / "models").glob("model-*.safetensors"))
    assert so_far["unfinished"] and so_far["model_version"] == int(newest.stem.removeprefix("model-"))
    assert (fleet.run / "model.safetensors").read_bytes() == newest.read_bytes()
    tasks = pq.read_table(fleet.run / "tasks.parquet").to_pylist()
    assert len(tasks) == len(events_of(fleet.run, "dispatched"))
    assert {row["outcome"] for row in tasks} == {"applied"}, "a stop waits for what is on its way"


def passed_with_everybody_there(ledger: list[dict[str, Any]]) -> int:
    """Rounds in which nobody was left to ask although both devices had been given a task since the edge server was started."""
    there: set[int] = set()
    passed = 0
    for event in ledger:
        if event["kind"] == "resumed":
            there.clear()
        elif event["kind"] == "dispatched":
            there.add(event["device"])
        passed += event["kind"] == "passed" and len(there) == 2
    return passed


def test_a_run_is_stopped_twice_and_goes_on_to_its_end(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        model = write_model(tmp_path / "initial.safetensors")
        settings = {"fleet__devices": 2, "fleet__channels": 2, "live__heartbeat_s": 0.3}
        new = ("--state", fleet.run, "--initial", model, "--rounds", ROUNDS, "--time-scale", 0.2)
        fleet.edge(*new, **settings)
        url = fleet.url()
        second = run_cli("edge", "--resume", fleet.run)
        assert second.returncode == 2 and second.stderr.count("\n") == 1, second.stderr
        assert "is being written by another fedtwin" in second.stderr
        assert fleet.processes["edge"].poll() is None

        for name in ("d0", "d1"):
            fleet.device(name, url, *EMULATED)
        fleet.wait_for("applied", count=5)
        assert fleet.stopped("edge") == 0
        check_it_was_stopped(fleet, 1)
        fleet.edge(*new, **settings)
        assert fleet.url() == url
        resumed = fleet.wait_for("resumed")
        fleet.wait_for("applied", lambda event: event["at_s"] > resumed["at_s"], count=3)
        assert fleet.stopped("edge") == 0
        check_it_was_stopped(fleet, 2)

        fleet.edge("--resume", fleet.run)
        assert fleet.ended("edge") == 0
        assert len(events_of(fleet.run, "resumed")) == 2 and len(events_of(fleet.run, "began")) == 1
        assert {event["reason"] for event in events_of(fleet.run, "declined")} <= {"not connected"}
        summary = json.loads((fleet.run / "summary.json").read_text(encoding="utf-8"))
        assert summary["ended_by"] == f"run.rounds = {ROUNDS}" and not (fleet.run / "summary-so-far.json").exists()
        assert summary["rounds"] + summary["passed_rounds"] == ROUNDS and summary["tasks_given_up"] == 0
        assert passed_with_everybody_there(ledger_of(fleet.run)) == 0, "only while the devices come back"
        versions = [event["version"] for event in events_of(fleet.run, "applied")]
        assert versions == list(range(1, len(events_of(fleet.run, "dispatched")) + 1))
        for name in ("d0", "d1"):
            assert fleet.stopped(name) == 0

        again = run_cli("edge", "--resume", fleet.run)
        assert again.returncode == 2 and "this run is finished" in again.stderr


def test_a_stop_that_comes_at_the_end_does_not_keep_the_records_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plants, "FEDTWIN", [sys.executable, "-W", "error", "-c", STOPPED_AT_ITS_RECORDS])
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 3, "--time-scale", 0.2, fleet__devices=1, fleet__channels=1)
        fleet.device("d0", fleet.url(), *EMULATED)
        assert fleet.ended("edge") == 0
        assert json.loads((fleet.run / "summary.json").read_text(encoding="utf-8"))["rounds"] == 3
        assert not (fleet.run / ".lock").exists()


def test_an_edge_server_nobody_came_to_stops_with_empty_tables(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        fleet.new_edge()
        until(lambda: "serving" in fleet.log("edge"), "serving")
        assert fleet.stopped("edge") == 0
        assert [event["kind"] for event in ledger_of(fleet.run)] == ["began", "stopped"]
        assert pq.read_table(fleet.run / "rounds.parquet").num_rows == 0
        assert "not started" in (tmp_path / "edge.out").read_text(encoding="utf-8")


@pytest.mark.parametrize("what", ["edge", "device", "evaluator"])
def test_a_stop_is_heard_while_the_server_cannot_be_reached(tmp_path: Path, what: str) -> None:
    with plant(tmp_path) as fleet:
        nowhere = ("--server", "nats://127.0.0.1:1")
        if what == "edge":
            fleet.new_edge(*nowhere)
        elif what == "device":
            fleet.device("device", nowhere[1], "--no-training", "--samples", 5)
        else:
            fleet.command("evaluator", "evaluator", *nowhere)
        until(lambda: "Trying again" in fleet.log(what), "a failed attempt")
        fleet.processes[what].send_signal(signal.SIGTERM)
        assert fleet.ended(what) == 0
        if what == "edge":
            assert ledger_of(fleet.run)[-1]["kind"] == "stopped"


def test_a_device_whose_command_takes_long_can_be_stopped(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        fleet.new_edge("--grace-s", 0.1, fleet__devices=1, fleet__channels=1, live__deadline_margin_s=60)
        mark = tmp_path / "runs"
        code = f"import pathlib, time; pathlib.Path('{mark}').touch(); time.sleep(100)"
        fleet.device("d0", fleet.url(), "--samples", 5, "--command", f'{sys.executable} -c "{code}"')
        until(mark.exists, "the command")
        fleet.processes["d0"].terminate()
        assert fleet.ended("d0") == 0
        assert fleet.stopped("edge") == 0
