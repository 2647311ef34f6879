"""Server-sent events: a stream that was broken off goes on where it was, and misses nothing."""

import threading
import time
from pathlib import Path

import httpx
import pytest

from fedtwin import Run, open_run
from fedtwin.live.run import events
from tests.live.run.test_live_run import begun, deliver, dispatch, weights
from tests.service.serving import events_of, serving


def test_a_finished_run_tells_how_it_stands_and_that_it_has_ended(client: httpx.Client, run: Run) -> None:
    (kind, number, state), (last, _, _) = events_of(client, "/api/runs/factory/events", 2)
    assert (kind, last) == ("state", "finished") and number == str(run.moment().revision)
    assert state["total_queue"] == run.summary["total_queue"] and len(state["changed"]) == 30


def test_who_comes_back_hears_what_has_changed_since(client: httpx.Client, run: Run) -> None:
    revision = run.moment(round=395).revision
    (_, _, state), _ = events_of(client, "/api/runs/factory/events", 2, **{"Last-Event-ID": str(revision)})
    before, now = run.twin(revision=revision), run.twin()
    changed = [number for number, pair in enumerate(zip(before.devices, now.devices, strict=True)) if pair[0] != pair[1]]
    assert sorted(map(int, state["changed"])) == changed and 0 < len(changed) < 30
    assert state["changed"][str(changed[0])]["selections"] == now.devices[changed[0]].selections


def test_what_was_never_an_event_is_no_place_to_go_on_from(client: httpx.Client) -> None:
    for number in ("99999999", "x", "-1", "1e9"):
        (_, _, state), _ = events_of(client, "/api/runs/factory/events", 2, **{"Last-Event-ID": number})
        assert len(state["changed"]) == 30


def test_ditto_streams_the_events_of_things(client: httpx.Client) -> None:
    (kind, _, _), _ = events_of(client, "/api/2/things?ids=factory:device-1", 2)
    assert kind == "state"


def test_a_live_run_is_followed_while_it_is_written(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    deliver(live, dispatch(live), weights(1.0))
    heard: list[tuple[str, str | None, dict[str, object]]] = []
    with serving(tmp_path / "run") as client:
        assert client.get("/api/runs").json()["runs"][0]["kind"] == "live"
        fleet = client.get("/api/runs/run/fleet").json()
        assert fleet["live"] and fleet["model_version"] == 1 and fleet["columns"]["name"] == ["a", "b", "c"]
        first = threading.Event()

        def listen() -> None:
            first.set()
            heard.extend(events_of(client, "/api/runs/run/events", 2, **{"Last-Event-ID": str(fleet["revision"])}))

        listener = threading.Thread(target=listen)
        listener.start()
        first.wait()
        sent = dispatch(live)
        while not heard and listener.is_alive() and client.get("/api/runs/run/fleet").json()["in_flight"] == 0:
            pass
        deliver(live, sent, weights(2.0))
        dispatch(live)
        listener.join(60)
        states = [data for kind, _, data in heard if kind == "state"]
        assert states and any(str(sent.device) in data["changed"] for data in states)  # type: ignore[operator]
        tasks = client.get("/api/runs/run/tasks").json()["tasks"]
        assert [task["outcome"] for task in tasks] == ["applied", "applied", "open"]
        digest = client.get("/api/2/things/run:edge/features/model/properties/digest").json()
        assert digest["value"] is not None
    live.close()
    assert not open_run(tmp_path / "run").finished


def test_who_comes_back_hears_evaluations_of_models_that_stood_before(tmp_path: Path) -> None:
    """A worker takes its time: what it says is of an earlier second than that of the last event that was heard."""
    live = begun(tmp_path / "run")
    deliver(live, dispatch(live), weights(1.0))
    stood_s, round_ = live.now_s(), live.core.round
    deliver(live, dispatch(live), weights(2.0))
    with serving(tmp_path / "run") as client:
        revision = client.get("/api/runs/run/fleet").json()["revision"]
        live.commit(
            events.Measured(
                at_s=live.now_s(), version=1, round=round_, model_at_s=stood_s, energy_j=0.0, test_loss=0.5, test_accuracy=0.9
            )
        )
        while not client.get("/api/runs/run/curves").json()["evaluations"]["clock_s"]:
            pass
        kinds = [kind for kind, _, _ in events_of(client, "/api/runs/run/events", 1, **{"Last-Event-ID": str(revision)})]
        assert kinds == ["evaluation"]
        revision = client.get("/api/runs/run/fleet").json()["revision"]
        dispatch(live)
        kinds = [kind for kind, _, _ in events_of(client, "/api/runs/run/events", 1, **{"Last-Event-ID": str(revision)})]
        assert kinds == ["state"], "it was heard"
    live.close()


GROW = ("queue", "gain_age_s", "cpu_age_s", "staleness")


def test_the_fleet_follows_from_the_events_alone(tmp_path: Path) -> None:
    """What a listener adds up is what the service shows, device by device."""
    live = begun(tmp_path / "run")
    with serving(tmp_path / "run") as client:
        before = client.get("/api/runs/run/fleet").json()
        for _ in range(5):
            deliver(live, dispatch(live), weights(1.0))
        while client.get("/api/runs/run/fleet").json()["model_version"] < 5:
            pass
        ((_, _, said),) = events_of(client, "/api/runs/run/events", 1, **{"Last-Event-ID": str(before["revision"])})
        now = client.get(f"/api/runs/run/fleet?at=revision:{said['revision']}").json()
        more = {
            "queue": (said["queue_round"] - before["queue_round"]) * said["min_mean_samples"],
            "staleness": said["model_version"] - before["model_version"],
        } | dict.fromkeys(("gain_age_s", "cpu_age_s"), said["now_s"] - before["now_s"])
        for name, column in now["columns"].items():
            if name == "trusted":
                continue
            for number, value in enumerate(column):
                old = before["columns"][name][number]
                grown = old if old is None or name not in GROW else old + more[name]
                follows = said["changed"].get(str(number), {}).get(name, grown)
                if name.endswith("age_s") and follows is not None:
                    follows += now["now_s"] - said["now_s"]
                assert follows == (value if not isinstance(value, float) else pytest.approx(value)), (name, number)
    live.close()


def test_ages_of_a_fleet_that_says_nothing_grow(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    deliver(live, dispatch(live), weights(1.0))
    with serving(tmp_path / "run") as client:

        def oldest() -> float:
            columns = client.get("/api/runs/run/fleet").json()["columns"]
            return max(float(age) for age in columns["gain_age_s"] if age is not None)

        first = oldest()
        time.sleep(1.1)
        assert oldest() >= first + 1.0 / live.core.live.time_scale
        (listed,) = client.get("/api/runs").json()["runs"]
        assert not listed["stopped"] and not listed["finished"]
        live.close()
        stands = oldest()
        time.sleep(0.3)
        assert oldest() == stands, "nobody serves it any more: its clock stands"
        assert client.get("/api/runs").json()["runs"][0]["stopped"]
