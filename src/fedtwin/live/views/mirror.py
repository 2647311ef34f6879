"""The twin in a key-value bucket with history, for whoever wants to watch. The ledger is the truth; this is a copy of it."""

import json
from collections.abc import Mapping

from fedtwin.live.run.core import Core
from fedtwin.live.wire.ports import Transport
from fedtwin.live.wire.protocol import Telemetry
from fedtwin.twin import device_to_dict

HISTORY = 32


class Mirror:
    """Key ``device.NAME``: the twin of one device; ``stranger.NAME``: telemetry of one that has not joined; ``model``.

    Only what has changed is written. A queue grows without a change: Q_n(t) = ``queue`` + (t − ``queue_round``) times the
    ``min_mean_samples`` in ``model``, whose ``round`` is the last that was opened.
    """

    def __init__(self, transport: Transport, table: str) -> None:
        self._transport, self._table = transport, table
        self._written: dict[str, object] = {}
        self._losses = 0

    async def write(self, core: Core, strangers: Mapping[str, Telemetry], storage_losses: int) -> None:
        if self._losses != storage_losses:
            self._written, self._losses = {}, storage_losses
        for name, telemetry in list(strangers.items()):
            await self._put(f"stranger.{name}", telemetry, telemetry.model_dump(mode="json", exclude_none=True))
        if not core.started:
            return
        twin = core.twin
        devices = list(zip(core.names, twin.devices, strict=True))  # before the first await: a device may join during it
        state = {
            "version": core.version,
            "round": core.round,
            "changes": core.changes,
            "min_mean_samples": twin.min_mean_samples,
        }
        await self._put("model", tuple(state.values()), state)
        for name, device in devices:
            await self._put(f"device.{name}", device, {**device_to_dict(device), "mean_cost": device.mean_cost})

    async def _put(self, key: str, state: object, shown: object) -> None:
        if self._written.get(key) != state:
            await self._transport.put(self._table, key, json.dumps(shown).encode())
            self._written[key] = state


async def open_mirror(transport: Transport, table: str, replicas: int) -> Mirror:
    await transport.make_table(table, HISTORY, replicas)
    return Mirror(transport, table)
