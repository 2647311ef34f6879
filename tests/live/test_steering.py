"""A person steers a run with ``fedtwin admin``, and begins others beside it and from it."""

import json
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import FEDTWIN
from tests.live.brokers import running
from tests.live.plant import Plant, events_of, ledger_of, plant

EMULATED = ("--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)
SETTINGS = {"fleet__devices": 2, "fleet__channels": 2, "live__heartbeat_s": 0.3}


def ordered(fleet: Plant, url: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [*FEDTWIN, "admin", *map(str, words), "--server", url]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=fleet.folder)


def done(fleet: Plant, url: str, *words: object) -> str:
    answer = ordered(fleet, url, *words)
    assert answer.returncode == 0 and answer.stdout.count("\n") == 1, answer
    return answer.stdout.strip()


def refused(fleet: Plant, url: str, *words: object) -> str:
    answer = ordered(fleet, url, *words)
    assert answer.returncode == 2 and answer.stderr.count("\n") == 1, answer
    return answer.stderr.strip()


def has_joined_again(fleet: Plant, name: str) -> bool:
    return fleet.log(name).count("joined") == 2


def settled_version(fleet: Plant) -> int:
    """When nothing more comes."""
    before = -1
    while (now := len(events_of(fleet.run, "applied"))) != before:
        before = now
        time.sleep(1.0)
    return now


@pytest.mark.slow
def test_a_run_is_steered_from_its_start_to_its_end(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 10**6, "--time-scale", 0.1, learning__dataset="digits", **SETTINGS)
        url = fleet.url()
        for name in ("d0", "d1"):
            fleet.device(name, url, *EMULATED)
        fleet.wait_for("applied", count=5)

        assert done(fleet, url, "pause").startswith("The run is paused: no new tasks, ")
        assert refused(fleet, url, "pause") == "error: The run is paused already."
        count = settled_version(fleet)
        fleet.kill("edge")
        fleet.edge("--resume", fleet.run)
        fleet.wait(lambda: fleet.log("edge").count("serving") == 2, "serving")
        assert settled_version(fleet) == count, "paused after a restart, too"
        assert done(fleet, url, "resume") == "The run goes on."
        fleet.wait_for("applied", count=count + 5)

        assert done(fleet, url, "drain", "d0").startswith("d0 is given no new task until it is released")
        assert "nobody is not known here" in refused(fleet, url, "drain", "nobody")
        drained = len(ledger_of(fleet.run))
        fleet.wait_for("applied", count=len(events_of(fleet.run, "applied")) + 5)
        sent = [event for event in ledger_of(fleet.run)[drained:] if event["kind"] == "dispatched"]
        assert sent and {event["device"] for event in sent} == {1}
        assert done(fleet, url, "release", "d0") == "d0 is released: it was drained."
        fleet.wait_for("dispatched", lambda event: event["device"] == 0 and event["at_s"] > sent[-1]["at_s"])

        assert "objective.energy_weight = 0.9 from round " in done(fleet, url, "set", "objective.energy_weight=0.9")
        assert "what can is run.rounds, policy.v" in refused(fleet, url, "set", "fleet.channels=1")
        change = events_of(fleet.run, "set")[0]
        assert change["by"] == "operator" and "@" in change["person"] and abs(change["wall_s"] - time.time()) < 600
        assert "ordered: set" in fleet.log("edge") and "by=operator" in fleet.log("edge")

        done(fleet, url, "set", "learning.learning_rate=0.01")
        for name in ("d0", "d1"):
            fleet.wait(partial(has_joined_again, fleet, name), f"{name} joins with the new rate")
        fleet.wait_for("applied", count=len(events_of(fleet.run, "applied")) + 5)
        assert not events_of(fleet.run, "given-up") and not events_of(fleet.run, "refused")

        assert done(fleet, url, "finish").startswith("The run ends at round ")
        assert fleet.ended("edge") == 0
        summary = json.loads((fleet.run / "summary.json").read_text(encoding="utf-8"))
        assert summary["ended_by"] == "operator has said finish" and len(summary["changed"]) == 2
        assert (fleet.run / "model.safetensors").exists() and events_of(fleet.run, "stopped")[-1]["finished"]


@pytest.mark.slow
def test_two_runs_at_once_on_one_broker_and_a_third_that_begins_from_the_first(tmp_path: Path) -> None:
    with running(tmp_path) as broker, plant(tmp_path) as fleet, plant(tmp_path / "other") as other:
        for one, name, seconds in ((fleet, "main", 4), (other, "second", 5)):
            one.folder.mkdir(exist_ok=True)
            one.new_edge(
                *("--rounds", 10**6, "--time-scale", 0.1, "--server", broker.url, "--run", name),
                live__stop_after_s=seconds, **SETTINGS,
            )  # fmt: skip
            for device in ("d0", "d1"):
                one.device(device, broker.url, *EMULATED, "--run", name)
        assert fleet.ended("edge") == 0 and other.ended("edge") == 0
        for one, seconds in ((fleet, 4), (other, 5)):
            summary = json.loads((one.run / "summary.json").read_text(encoding="utf-8"))
            assert summary["ended_by"] == f"live.stop_after_s = {seconds}.0" and summary["uploads_applied"] > 5
            assert summary["tasks_given_up"] == summary["refusals"] == 0, "neither has heard of the other"
        first, fleet.run = fleet.run, tmp_path / "third"
        fleet.edge("--out", fleet.run, "--from", first, "--server", broker.url, "--rounds", 5)
        assert fleet.ended("edge") == 0, "the same agents"
        assert "begins from" in fleet.log("edge") and "its settings but for run.rounds" in fleet.log("edge")
        begun = (fleet.run / "models").glob("model-*.safetensors")
        assert events_of(fleet.run, "began")[0]["model_sha256"] and [*begun]
        config = (fleet.run / "config.toml").read_text(encoding="utf-8")
        assert "rounds = 5" in config and "heartbeat_s = 0.3" in config
