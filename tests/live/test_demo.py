"""``fedtwin live demo``: a whole fleet that trains."""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fedtwin.errors import FedtwinError
from fedtwin.live.demo import _follow, demo_config
from fedtwin.live.local import LocalFleet
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


def test_a_demo_that_would_never_start_is_refused(cli: Cli, tmp_path: Path) -> None:
    done = cli(*ARGUMENTS, "--set", "live.start_with=5")
    assert done.returncode == 2 and not (tmp_path / "demo").exists()
    assert done.stderr == "error: live.start_with = 5 is more than the 3 devices: no run would start.\n"
    for overrides in ({"live.start_with": 3}, {"live.start_with": 5, "fleet.devices": 6}):
        assert demo_config(3, overrides).live is not None


ENDS = """
import sys, time
name = "edge" if sys.argv[1] == "edge" else sys.argv[2]
if name == "device-1":
    sys.exit(int(sys.argv[-1]))
if name == "edge":
    print("warning: of no use", file=sys.stderr)
    print("2026-01-01T00:00:00.000Z info    applied  device=d0", file=sys.stderr)
    print("2026-01-01T00:00:00.000Z warning no upload was mixed in for 60 s  reasons=none", file=sys.stderr, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("code", [0, 7])
def test_a_device_that_ends_before_the_edge_server_ends_the_demo(tmp_path: Path, code: int) -> None:
    """However it ends: without it the run may stand still for ever. What the edge server warns of is shown meanwhile."""
    said: list[str] = []
    with LocalFleet(tmp_path, program=(sys.executable, "-c", ENDS), stop_s=0) as fleet:
        fleet.edge()
        while "60 s" not in fleet.log("edge"):
            fleet.processes["edge"].poll()
        fleet.device("device-0", "nats://nowhere")
        fleet.device("device-1", "nats://nowhere", code)
        with pytest.raises(FedtwinError, match=f"^device-1 ended before the run did, with exit code {code}: without a word"):
            _follow(fleet, lambda _: None, said.append)
    assert said == ["warning: of no use", "warning: no upload was mixed in for 60 s  reasons=none"]


@pytest.mark.slow
def test_a_demo_in_which_everybody_declines(cli: Cli, tmp_path: Path) -> None:
    done = cli(*ARGUMENTS[:4], "--rounds", 2, *ARGUMENTS[6:], "--set", "objective.max_energy_j=1e-9")
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: No upload was mixed in: declined: compute-energy (")
    assert (tmp_path / "demo" / "summary.json").exists()
