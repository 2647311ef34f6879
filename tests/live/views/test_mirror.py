"""Whoever reads the bucket can work out every queue as the coordinator has it, however long ago it was written."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.views.mirror import Mirror
from fedtwin.live.views.sight import Sight
from fedtwin.live.wire.ports import Transport
from fedtwin.live.wire.protocol import Hello
from fedtwin.twin import queue_at, twin_from_json, twin_to_json
from tests.live.run.test_live_run import begun, deliver, dispatch, weights


class Bucket:
    """Keeps the last value of every key, and counts."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.writes: list[str] = []

    async def put(self, table: str, key: str, value: bytes) -> None:
        assert table == "twin"
        self.values[key] = json.loads(value)
        self.writes.append(key)


def written(live: LiveRun, mirror: Mirror, at_s: float = 1.0) -> None:
    sight = Sight(live.core)
    asyncio.run(mirror.write(live.core, {}, 0, sight, sight.run(at_s, wall_s=at_s)))


def test_the_queue_of_a_device_that_was_not_chosen_for_long_is_exact(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"objective.min_mean_samples": 20.0, "policy.name": "fairness", "fleet.channels": 1})
    bucket = Bucket()
    mirror = Mirror(cast(Transport, bucket), "twin")
    written(live, mirror)
    for value in range(9):
        deliver(live, dispatch(live), weights(float(value)))
        written(live, mirror)
    core, model = live.core, bucket.values["model"]
    assert model["round"] == core.round > 3
    now = model["round"] + 1
    for name, device in zip(core.names, core.twin.devices, strict=True):
        shown = bucket.values[f"device.{name}"]
        expected = queue_at(device.queue, device.queue_round, now, core.twin.min_mean_samples)
        assert shown["queue"] + (now - shown["queue_round"]) * model["min_mean_samples"] == expected
    assert any(device.queue_round < now - 1 for device in core.twin.devices), "one was written some rounds ago"
    assert bucket.writes.count("device.a") < bucket.writes.count("model"), "and only what changes is written"
    live.close()


def test_the_bucket_holds_the_whole_twin(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    deliver(live, dispatch(live), weights(1.0))
    sent = dispatch(live)
    bucket = Bucket()
    written(live, Mirror(cast(Transport, bucket), "twin"))
    twin = live.core.twin
    devices = [bucket.values[f"device.{name}"] for name in live.core.names]
    assert devices[sent.device]["status"] == "in-flight"
    assert [device.pop("mean_cost") for device in devices] == [device.mean_cost for device in twin.devices]
    assert all(device.pop("seen") for device in devices)
    assert twin_from_json(json.dumps({**json.loads(twin_to_json(twin)), "devices": devices})) == twin
    live.close()


def test_a_device_may_join_while_the_bucket_is_written(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")

    class Joining(Bucket):
        async def put(self, table: str, key: str, value: bytes) -> None:
            if key == "model" and "late" not in live.core.names:
                live.commit(live.core.join("late", Hello(samples=50), live.now_s()))
            await super().put(table, key, value)

    bucket = Joining()
    mirror = Mirror(cast(Transport, bucket), "twin")
    written(live, mirror)
    assert sorted(bucket.values) == ["device.a", "device.b", "device.c", "model", "run"]
    written(live, mirror)
    assert "device.late" in bucket.values
    live.close()


def test_the_run_is_written_again_after_a_while_though_nothing_has_changed(tmp_path: Path) -> None:
    live, bucket = begun(tmp_path / "run"), Bucket()
    mirror = Mirror(cast(Transport, bucket), "twin")
    for at_s in (0.0, 0.5, 1.0, 2.5, 3.0):
        written(live, mirror, at_s)
    assert bucket.writes.count("run") == 2 and bucket.writes.count("device.a") == 1
    live.close()
