"""Two edge servers of one run name: one serves, the other is refused, or stands by and takes over."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.live.brokers import frozen, running
from tests.live.plant import LIMIT_S, Plant, events_of, ledger_of, plant, until

EMULATED = ("--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)
MANY = 100_000
TWO = {"fleet__devices": 2, "fleet__channels": 2, "objective__max_time_s": 100.0, "objective__max_energy_j": 100.0}
"""Two devices that decline nothing, however slow the machine is."""


def applied(run: Path) -> int:
    return len(events_of(run, "applied"))


def serve(fleet: Plant, url: str, **settings: object) -> None:
    """A first edge server with its devices, on a broker that is not its own."""
    fleet.new_edge("--rounds", MANY, "--server", url, "--time-scale", 0.02, **TWO, **settings)
    for number in range(2):
        fleet.device(f"d{number}", url, *EMULATED)


def goes_on(fleet: Plant, more: int = 5) -> None:
    """Uploads are mixed in, more than have been."""
    wanted = applied(fleet.run) + more
    fleet.wait(lambda: applied(fleet.run) >= wanted, f"{more} more uploads")


def test_a_second_edge_server_of_the_name_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with running(tmp_path) as broker, plant(tmp_path) as fleet:
        serve(fleet, broker.url)
        goes_on(fleet)
        second, initial = tmp_path / "second", tmp_path / "initial.safetensors"
        settings = ("--set", "fleet.devices=2", "--set", "fleet.channels=2")
        fleet.command(
            *("second", "edge", "--no-evaluator", "--out", second, "--initial", initial, "--server", broker.url, *settings)
        )
        until(
            lambda: fleet.processes["second"].poll() is not None or "serving" in fleet.log("second"),
            "the second says something",
        )
        fleet.processes["second"].terminate()
        assert fleet.ended("second") == 2, fleet.log("second")
        goes_on(fleet)
        assert "error: run 'main'" in fleet.log("second") and not second.exists()
        assert not events_of(fleet.run, "refused") and ledger_of(fleet.run)[-1]["kind"] != "stopped"


def stand_by(fleet: Plant, name: str, run: Path, *arguments: object) -> None:
    fleet.command(name, "edge", "--no-evaluator", "--state", run, "--standby", *arguments)
    until(lambda: "standing by" in fleet.log(name), f"{name} stands by")


def resumed_by(fleet: Plant, name: str) -> None:
    """The standby serves, and is the edge server from now on."""
    until(lambda: "serving" in fleet.log(name), f"{name} takes over: {fleet.log(name)}")
    fleet.processes["edge"] = fleet.processes[name]
    goes_on(fleet)


def test_a_standby_of_the_folder_takes_over_with_its_broker_and_one_that_is_stopped_changes_nothing(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", MANY, "--time-scale", 0.02, **TWO)
        for number in range(2):
            fleet.device(f"d{number}", fleet.url(), *EMULATED)
        stand_by(fleet, "stopped", fleet.run)
        stand_by(fleet, "second", fleet.run)
        assert fleet.stopped("stopped") == 0 and not events_of(fleet.run, "resumed") and not events_of(fleet.run, "stopped")
        goes_on(fleet)
        broker = fleet.broker_record()
        fleet.kill("edge")
        resumed_by(fleet, "second")
        assert "taking over" in fleet.log("second") and fleet.broker_record() == broker
        assert len(events_of(fleet.run, "resumed")) == 1
        tokens = [event["token"] for event in events_of(fleet.run, "applied")]
        assert len(tokens) == len(set(tokens))


@pytest.mark.slow
def test_a_crashed_edge_server_does_not_block_its_own_resume_nor_for_long_a_run_elsewhere(tmp_path: Path) -> None:
    with running(tmp_path) as broker, plant(tmp_path) as fleet:
        serve(fleet, broker.url)
        goes_on(fleet)
        fleet.kill("edge")
        fleet.edge("--resume", fleet.run, "--server", broker.url)
        goes_on(fleet)
        fleet.kill("edge")
        other = fleet.folder / "other"
        fleet.run = other
        fleet.new_edge("--rounds", MANY, "--server", broker.url, "--time-scale", 0.02, **TWO)
        goes_on(fleet)


@pytest.mark.slow
def test_a_pause_of_three_seconds_does_not_cost_the_lease_and_a_longer_one_without_a_standby_neither(tmp_path: Path) -> None:
    with running(tmp_path) as broker, plant(tmp_path) as fleet:
        serve(fleet, broker.url)
        for pause_s in (3.0, 6.0):
            goes_on(fleet)
            with frozen(fleet.processes["edge"].pid):
                time.sleep(pause_s)
            goes_on(fleet)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "asleep"])
def test_a_standby_on_another_machine_has_the_ledger_and_a_first_that_wakes_up_has_done_nothing(
    tmp_path: Path, end: str
) -> None:
    """The two share nothing but the broker: each has a folder of its own."""
    with running(tmp_path) as broker, plant(tmp_path) as fleet:
        serve(fleet, broker.url, live__ledger="stream")
        goes_on(fleet)
        first, second, edge = fleet.run, tmp_path / "second", fleet.processes["edge"]
        stand_by(fleet, "second", second, "--server", broker.url)
        goes_on(fleet)
        if end == "killed":
            fleet.kill("edge")
        else:
            os.kill(edge.pid, signal.SIGSTOP)
        fleet.run = second
        resumed_by(fleet, "second")
        if end == "asleep":
            os.kill(edge.pid, signal.SIGCONT)
            assert edge.wait(LIMIT_S) == 5, fleet.log("edge")
            assert "taken over" in fleet.log("edge")
        goes_on(fleet)
        before, after = ledger_of(first), ledger_of(second)
        assert after[: len(before)] == before, "the first has nothing that the second has not"
        tokens = [event["token"] for event in after if event["kind"] == "applied"]
        assert len(tokens) == len(set(tokens))
        assert fleet.stopped("second") == 0
        fleet.run = first
        fleet.edge("--resume", first, "--server", broker.url)
        fleet.wait(lambda: fleet.log("edge").count("serving") == 2, "the first serves again")
        goes_on(fleet)
        assert ledger_of(first)[: len(after)] == after


@pytest.mark.slow
def test_of_two_standbys_one_takes_over_and_the_other_after_it(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", MANY, "--time-scale", 0.02, **TWO)
        for number in range(2):
            fleet.device(f"d{number}", fleet.url(), *EMULATED)
        standbys = ["second", "third"]
        for name in standbys:
            stand_by(fleet, name, fleet.run)
        goes_on(fleet)
        fleet.kill("edge")
        until(lambda: any("serving" in fleet.log(name) for name in standbys), "one takes over")
        standbys.sort(key=lambda name: "serving" not in fleet.log(name))
        resumed_by(fleet, standbys[0])
        assert "serving" not in fleet.log(standbys[1]) and fleet.processes[standbys[1]].poll() is None
        fleet.kill(standbys[0])
        resumed_by(fleet, standbys[1])
        assert len(events_of(fleet.run, "resumed")) == 2


@pytest.mark.slow
def test_started_at_one_moment_the_broker_restarted_under_both_and_the_standby_killed(tmp_path: Path) -> None:
    """The first one serves all the time, until it is killed with the broker."""
    with running(tmp_path) as broker, plant(tmp_path) as fleet:
        fleet.command("second", "edge", "--no-evaluator", "--state", tmp_path / "2", "--standby", "--server", broker.url)
        serve(fleet, broker.url, live__ledger="stream")
        goes_on(fleet)
        until(lambda: "standing by: another edge server serves" in fleet.log("second"), "the second follows")
        broker.restart()
        goes_on(fleet)
        assert "serving" not in fleet.log("second")
        fleet.kill("second")
        goes_on(fleet)
        stand_by(fleet, "again", tmp_path / "2", "--server", broker.url)
        fleet.kill("edge")
        broker.restart()
        fleet.run = tmp_path / "2"
        resumed_by(fleet, "again")


@pytest.mark.slow
def test_a_run_that_is_finished_leaves_a_standby_with_its_records(tmp_path: Path) -> None:
    with running(tmp_path) as broker, plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 40, "--server", broker.url, "--time-scale", 0.2, **TWO, live__ledger="stream")
        stand_by(fleet, "second", tmp_path / "second", "--server", broker.url)
        for number in range(2):
            fleet.device(f"d{number}", broker.url, *EMULATED)
        assert fleet.ended("edge") == 0 and fleet.ended("second") == 0, fleet.log("second")
        first, second = (folder / "model.safetensors" for folder in (fleet.run, tmp_path / "second"))
        assert first.read_bytes() == second.read_bytes() and ledger_of(tmp_path / "second") == ledger_of(fleet.run)
