"""``fedtwin live demo``: a whole fleet that trains."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import Cli
from tests.live.plant import events_of

ARGUMENTS = ("live", "demo", "--devices", 3, "--rounds", 30, "--time-scale", 0.05, "--out", "demo")


def test_the_demo_trains_and_says_how_well(cli: Cli, tmp_path: Path) -> None:
    done = cli(*ARGUMENTS)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "demo"
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["rounds"] == 30 and summary["devices"] == 3 and summary["tasks_given_up"] == 0
    evaluations = pq.read_table(folder / "evaluations.parquet").to_pylist()
    assert summary["test_accuracy"] == evaluations[-1]["test_accuracy"] > 0.2, "a guess is right one time in ten"
    assert events_of(folder, "evaluated")[-1]["version"] == summary["model_version"], "the final model is evaluated"
    assert all(event["train_loss"] > 0 for event in events_of(folder, "applied"))
    assert "device-2 joined" in done.stderr and "Traceback" not in done.stderr
    assert sorted(path.name for path in (folder / "logs").iterdir()) == [
        "device-0.log", "device-1.log", "device-2.log", "edge.log",
    ]  # fmt: skip
    assert "Traceback" not in "".join(path.read_text(encoding="utf-8") for path in (folder / "logs").iterdir())

    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    again = cli(*ARGUMENTS)
    assert again.returncode == 2 and again.stderr.count("\n") == 1
    assert "out = 'demo' exists already" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.slow
def test_a_demo_in_which_everybody_declines(cli: Cli, tmp_path: Path) -> None:
    done = cli(*ARGUMENTS[:4], "--rounds", 2, *ARGUMENTS[6:], "--set", "objective.max_energy_j=1e-9")
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: No upload was mixed in: declined: compute-energy (")
    assert (tmp_path / "demo" / "summary.json").exists()
