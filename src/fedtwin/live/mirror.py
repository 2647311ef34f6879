"""The twin in a key-value bucket with history, for whoever wants to watch. The ledger is the truth; this is a copy of it."""

import json

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig
from nats.js.kv import KeyValue

from fedtwin.live.core import Core
from fedtwin.twin import DeviceTwin, queue_at

HISTORY = 32


class Mirror:
    """Key ``device.NAME``: the twin of one device; ``model``: version and round. Only what has changed is written."""

    def __init__(self, store: KeyValue) -> None:
        self._store = store
        self._written: dict[str, object] = {}

    async def write(self, core: Core) -> None:
        if not core.started:
            return
        await self._put("model", {"version": core.version, "round": core.round, "changes": core.changes})
        for name, device in list(zip(core.names, core.twin.devices, strict=True)):  # others may join while this is written
            if self._written.get(name) is not device:
                await self._put(f"device.{name}", _as_dict(core, device))
                self._written[name] = device

    async def _put(self, key: str, value: object) -> None:
        if key == "model" and self._written.get(key) == value:
            return
        await self._store.put(key, json.dumps(value).encode())
        self._written[key] = value


async def open_mirror(js: JetStreamContext, bucket: str) -> Mirror:
    try:
        return Mirror(await js.key_value(bucket))
    except (nats.js.errors.NotFoundError, nats.js.errors.BucketNotFoundError):
        return Mirror(await js.create_key_value(KeyValueConfig(bucket=bucket, history=HISTORY)))


def _as_dict(core: Core, device: DeviceTwin) -> dict[str, object]:
    facts = {key: fact._asdict() if fact is not None else None for key, fact in (
        ("samples", device.samples), ("gain", device.gain), ("cpu_hz", device.cpu_hz), ("compute_s", device.compute_s)
    )}  # fmt: skip
    return {
        **facts,
        "status": device.status,
        "selections": device.selections,
        "declines": device.declines,
        "mean_cost": device.mean_cost,
        "queue": queue_at(device.queue, device.queue_round, core.round + 1, core.twin.min_mean_samples),
        "model_version": device.model_version,
    }
