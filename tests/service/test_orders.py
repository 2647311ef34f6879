"""Orders by the page go where those of ``fedtwin admin`` go; and an edge server never notices what becomes of its page."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedtwin.live import agents
from fedtwin.live.broker.provisioning import provision
from fedtwin.service.twins import Broker
from tests.live.brokers import own_port
from tests.live.plant import events_of, plant
from tests.live.run.test_live_run import begun
from tests.live.test_steering import EMULATED, SETTINGS
from tests.service.serving import serving


def children_of(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
def test_an_operator_steers_from_the_page_beside_an_edge_server(tmp_path: Path, tls: bool) -> None:
    folder = tmp_path / "keys"
    if tls:
        provision(folder, run="main", server_names=[], devices=["d0", "d1"])
    with plant(tmp_path) as fleet:
        page = ("--page", "--page-port", 0, *(("--credentials", folder, "--listen", f"127.0.0.1:{own_port()}") if tls else ()))
        edge = fleet.new_edge("--rounds", 10**6, "--time-scale", 0.1, *page, learning__dataset="digits", **SETTINGS)
        url = fleet.url()
        for name in ("d0", "d1"):
            fleet.device(name, url, *EMULATED, *(("--credentials", folder / "devices" / name) if tls else ()))
        fleet.wait_for("applied", count=5)
        found = fleet.wait(lambda: re.search(r"The page is at (http://\S+)/", fleet.log("edge")), "the page's address")
        with httpx.Client(base_url=found.group(1), timeout=60) as client:
            fleet.wait(lambda: client.get("/api/runs").json()["runs"][0]["rounds"], "the page has seen the run")
            assert client.get("/api/runs").json()["role"] == "operator"
            told = client.post("/api/runs/run/orders", json={"order": "pause"})
            assert told.status_code == 200 and told.json()["said"].startswith("The run is paused"), told.text
            again = client.post("/api/runs/run/orders", json={"order": "pause"})
            assert again.status_code == 409 and again.json()["error"] == "The run is paused already."
            assert client.post("/api/runs/run/orders", json={"order": "resume"}).status_code == 200
            desired = "/api/2/things/run:d0/features/training/desiredProperties/status"
            assert client.put(desired, json="drained").status_code == 200
            status = "/api/2/things/run:d0/features/training/properties/status/value"
            fleet.wait(lambda: client.get(status).json() == "drained", "d0 is drained on the page")
            setting = "/api/2/things/run:edge/features/settings/desiredProperties/policy.v"
            assert "policy.v = 5" in client.put(setting, json=5).json()["said"]
            fleet.wait(lambda: client.get("/api/runs/run").json()["changed"] == {"policy.v": 5}, "the setting is seen")
        ordered = [*events_of(fleet.run, "steered"), *events_of(fleet.run, "set")]
        assert [event.get("command") for event in ordered] == ["pause", "resume", "drain", None]
        assert {event["person"] for event in ordered} == {"loopback, by fedtwin serve"}
        serving_it = [pid for pid in children_of(edge.pid) if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(serving_it[0], signal.SIGKILL)
        fleet.wait_for("applied", count=len(events_of(fleet.run, "applied")) + 5)
        assert fleet.stopped("edge") == 0


def test_an_order_names_the_run_it_is_for_and_not_only_what_that_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``finish`` for a run that had been stopped long ago ended the one at the broker: both were called main."""
    given: list[Any] = []

    def order(command: str, servers: list[str], **about: Any) -> str:  # noqa: ARG001
        given.append(about["identity"])
        return "done"

    monkeypatch.setattr(agents, "order", order)
    old, fresh = begun(tmp_path / "old"), begun(tmp_path / "fresh")
    old.close()
    assert old.core.began is not None and fresh.core.began is not None and old.name == fresh.name
    try:
        with serving(tmp_path / "old", tmp_path / "fresh", broker=Broker(("nats://127.0.0.1:1",))) as client:
            for name in ("old", "fresh"):
                assert client.post(f"/api/runs/{name}/orders", json={"order": "finish"}).status_code == 200
    finally:
        fresh.close()
    assert given == [old.core.began.identity, fresh.core.began.identity] and given[0] != given[1]


def test_an_order_to_an_old_folder_does_nothing_to_the_run_of_that_name_at_the_broker(tmp_path: Path) -> None:
    old = begun(tmp_path / "old")
    old.close()
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 10**6, "--time-scale", 0.1, learning__dataset="digits", **SETTINGS)
        for name in ("d0", "d1"):
            fleet.device(name, fleet.url(), *EMULATED)
        fleet.wait_for("applied", count=3)
        with serving(tmp_path / "old", fleet.run, broker=Broker((fleet.url(),))) as client:
            for order in ("pause", "finish"):
                refused = client.post("/api/runs/old/orders", json={"order": order})
                assert refused.status_code == 409 and "another run" in refused.json()["error"], refused.text
            fleet.wait_for("applied", count=len(events_of(fleet.run, "applied")) + 3)
            assert not events_of(fleet.run, "steered")
            meant = client.post(f"/api/runs/{fleet.run.name}/orders", json={"order": "pause"})
            assert meant.status_code == 200, meant.text
        assert [event["command"] for event in events_of(fleet.run, "steered")] == ["pause"]
        assert fleet.stopped("edge") == 0


def test_who_cannot_be_reached_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "ANSWER_S", 0.3)
    live = begun(tmp_path / "run")
    try:
        with serving(tmp_path / "run") as client:
            refused = client.post("/api/runs/run/orders", json={"order": "pause"})
            assert refused.status_code == 409 and "--server URL" in refused.json()["error"]
        with serving(tmp_path / "run", broker=Broker(("nats://127.0.0.1:1",))) as client:
            refused = client.post("/api/runs/run/orders", json={"order": "drain", "device": "a"})
            assert refused.status_code == 409 and "does not answer" in refused.json()["error"]
            wrong = client.post("/api/runs/run/orders", json={"order": "drain"})
            assert wrong.status_code == 409 and "release and drain name a device" in wrong.json()["error"]
            assert client.post("/api/runs/run/orders", json={"order": "dance"}).status_code == 400
            desired = "/api/2/things/run:a/features/training/desiredProperties/queue"
            assert client.put(desired, json=3).status_code == 400
    finally:
        live.close()
