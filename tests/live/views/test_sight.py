"""What is seen of a run: from its events and its state, the same whether they are heard or read back."""

from pathlib import Path

import pytest

from fedtwin.live.run import events
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.views.metrics import Metrics
from fedtwin.live.views.sight import Sight
from fedtwin.live.views.status import status_of
from tests.live.run.test_live_run import begun, deliver, dispatch, weights


def seen(folder: Path, **settings: object) -> tuple[LiveRun, Sight]:
    live = begun(folder, **settings)
    sight = Sight(live.core)
    sight.read_back(folder / "ledger.jsonl")
    live.listeners.append(lambda event, _: sight.happened(event))
    return live, sight


def status(live: LiveRun, sight: Sight, later_s: float = 0.0) -> dict[str, object]:
    now_s = live.now_s() + later_s
    return status_of(sight.run(now_s), sight.devices(now_s), now_s=now_s)


def of(shown: dict[str, object], name: str) -> dict[str, object]:
    rows = shown["devices"]
    assert isinstance(rows, list)
    return next(row for row in rows if row["name"] == name)


def test_every_state_of_a_device_is_told(tmp_path: Path) -> None:
    live, sight = seen(tmp_path / "run", **{"fleet.channels": 3, "live.back_off_s": 100.0})
    sent = [dispatch(live) for _ in range(3)]
    names = [live.core.names[one.device] for one in sent]
    assert {of(status(live, sight), name)["state"] for name in names} == {"in flight"}
    deliver(live, sent[0], weights(1.0))
    assert of(status(live, sight), names[0])["state"] == "idle"
    live.quarantine(names[0], "flood: too much")
    assert (of(status(live, sight), names[0])["state"], of(status(live, sight), names[0])["left_out"]) == (
        *("cut", "flood: too much"),
    )
    live.quarantine(names[1], "norm: \x1b[2Jno")
    row = of(status(live, sight), names[1])
    assert (row["state"], row["left_out"]) == ("quarantined", "norm: \\x1b[2Jno")
    task = live.core.task_of(sent[2].device)
    assert task is not None
    live.commit(live.core.give_up(task, live.now_s(), "the deadline has passed", "offline"))
    row = of(status(live, sight, later_s=50.0), names[2])
    assert (row["state"], row["declined"]) == ("offline", "given up: the deadline has passed")
    assert isinstance(row["state_age_s"], float) and 50.0 <= row["state_age_s"] < 60.0
    live.core.back_off.failed(sent[2].device, live.now_s())
    assert of(status(live, sight), names[2])["state"] == "backed off"
    assert of(status(live, sight, later_s=200.0), names[2])["state"] == "offline"
    live.close()


def test_tasks_that_are_all_overdue_are_a_standstill_and_long_trainings_are_none(tmp_path: Path) -> None:
    live, sight = seen(tmp_path / "run", **{"fleet.channels": 2, "live.warn_after_s": 5.0})
    deliver(live, dispatch(live), weights(1.0))
    sent = [dispatch(live) for _ in range(2)]
    first, last = sorted(one.deadline_s for one in sent)
    shown = []
    for at_s in (first, last, last + 1e-3):
        run = sight.run(at_s)
        told = status_of({**run, "still_since_s": at_s - 60.0 / run["time_scale"]}, {}, now_s=at_s)["run"]
        shown.append((told["state"], told["why"]))
    assert shown[0] == shown[1] == ("running", [])
    assert shown[2] == ("stands still", ["the deadlines of all 2 tasks have passed, and none was mixed in or given up"])
    live.close()


def test_orders_are_seen(tmp_path: Path) -> None:
    live, sight = seen(tmp_path / "run")
    sent = dispatch(live)
    name = live.core.names[sent.device]
    live.commit(events.Steered(at_s=live.now_s(), command="drain", name=name, by="operator"))
    assert of(status(live, sight), name)["state"] == "in flight", "the task that it has is mixed in"
    deliver(live, sent, weights(1.0))
    row = of(status(live, sight), name)
    assert (row["state"], row["left_out"]) == ("drained", "until fedtwin admin release")
    live.commit(events.Steered(at_s=live.now_s(), command="pause", by="operator"))
    told = status(live, sight)["run"]
    assert isinstance(told, dict) and told["state"] == "paused" and told["devices"]["drained"] == 1
    live.close()


def test_an_upload_tells_what_was_foretold_and_what_was_measured(tmp_path: Path) -> None:
    live, sight = seen(tmp_path / "run")
    sent = dispatch(live)
    deliver(live, sent, weights(1.0))
    row = of(status(live, sight, later_s=30.0), live.core.names[sent.device])
    assert row["predicted_s"] == sent.compute_s + sent.upload_s and row["predicted_j"] == sent.compute_j + sent.upload_j
    assert row["measured_s"] is not None and row["measured_j"] is not None
    assert isinstance(row["last_upload_age_s"], float) and 30.0 <= row["last_upload_age_s"] < 40.0
    live.close()


def test_who_begins_later_reads_back_what_was(tmp_path: Path) -> None:
    live, sight = seen(tmp_path / "run")
    for value in range(3):
        deliver(live, dispatch(live), weights(float(value)))
    live.commit(events.Measured(at_s=live.now_s(), round=1, version=3, model_at_s=0.0, energy_j=0.0, test_loss=0.5))
    again = Sight(live.core)
    again.read_back(tmp_path / "run" / "ledger.jsonl")
    now_s = live.now_s()
    assert again.run(now_s) == sight.run(now_s) and again.devices(now_s) == sight.devices(now_s)
    assert again.run(now_s)["metric"]["value"] == 0.5
    Sight(live.core).read_back(tmp_path / "nowhere" / "ledger.jsonl")
    live.close()


def test_the_metric_of_all_queues_is_their_sum(tmp_path: Path) -> None:
    live, sight = seen(tmp_path / "run", **{"fleet.channels": 1, "objective.min_mean_samples": 20.0})
    metrics = Metrics()
    for _ in range(8):
        rows = status(live, sight)["devices"]
        assert isinstance(rows, list)
        metrics.look(live.core, connected=True, path_ok=True)
        shown = metrics.registry.get_sample_value("fedtwin_total_queue")
        assert shown is not None and shown == pytest.approx(sum(row["queue"] for row in rows)) and shown >= 0.0
        deliver(live, dispatch(live), weights(1.0))
    live.close()
