"""A fleet of real processes as a viewer sees it, and as its log tells who goes and comes back."""

import time
from pathlib import Path
from typing import Any

import pytest

from fedtwin.live import provision
from fedtwin.live.checkup import check_server
from fedtwin.live.seeing import Viewer
from fedtwin.runs.status import Watched
from tests.live.brokers import RUN, own_port
from tests.live.plant import plant, until

TRAINING = ("--no-training", "--samples", 50)


def row(status: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in status["devices"] if one["name"] == name)


@pytest.mark.slow
def test_a_viewer_sees_devices_go_and_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    provision(folder, run=RUN, server_names=[], devices=["a", "b"])
    with plant(tmp_path) as fleet:
        fleet.new_edge(
            "--rounds", 10**6, "--credentials", folder, "--listen", f"127.0.0.1:{own_port()}", "--metrics-devices", 1,
            fleet__devices=2, fleet__channels=1, live__heartbeat_s=0.2, live__offline_after_s=1, live__ask_timeout_s=0.5,
        )  # fmt: skip
        for name in ("a", "b"):
            fleet.device(name, fleet.url(), *TRAINING, "--credentials", folder / "devices" / name)
        fleet.wait_for("applied", count=5)
        time.sleep(1.0)  # it is shown at most twice a second
        with Viewer([fleet.url()], run=RUN, credentials=folder / "viewer") as viewer:
            seen = until(lambda: found if (found := viewer.look())["run"]["uploads"] >= 5 else None, "uploads in the bucket")
            assert seen["run"]["state"] == "running" and seen["run"]["uploads_per_min"] > 0.0
            assert {one["name"] for one in seen["devices"]} == {"a", "b"}
            shown = row(seen, "a")
            assert None not in (shown["predicted_s"], shown["measured_s"], shown["predicted_j"], shown["measured_j"])
            there = check_server([fleet.url()], run=RUN, credentials=folder / "devices" / "a", insecure=False)
            assert all(one.ok for one in there), there
            fleet.processes["b"].kill()
            fleet.processes["b"].wait()
            until(lambda: row(viewer.look(), "b")["state"] in ("offline", "backed off"), "b goes")
            assert row(Watched(fleet.run).look(), "b")["state"] in ("offline", "backed off")
            fleet.wait(lambda: "offline  device=b" in fleet.log("edge"), "a line of the log")
            fleet.device("b", fleet.url(), *TRAINING, "--credentials", folder / "devices" / "b")
            until(lambda: row(viewer.look(), "b")["state"] in ("idle", "in flight"), "b comes back")
            fleet.wait(lambda: "reconnected  device=b" in fleet.log("edge"), "a line of the log")
            fleet.processes["edge"].kill()
            time.sleep(0.1)
            assert row(Watched(fleet.run).look(), "a")
