"""The twin in a key-value bucket with history, for whoever wants to watch. The ledger is the truth; this is a copy of it."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fedtwin.live.run.core import Core
from fedtwin.live.views.sight import Sight
from fedtwin.live.wire.ports import Transport
from fedtwin.live.wire.protocol import Telemetry

HISTORY = 32
RUN_EVERY_S = 2.0


class Mirror:
    """Key ``device.NAME``: the twin of one device, and what was ``seen`` of it; ``stranger.NAME``: telemetry of one that has
    not joined; ``model``; ``run``: how the run goes on, every two seconds, so that one sees whether the edge server does.

    Only what has changed is written. A queue grows without a change: Q_n(t) = ``queue`` + (t − ``queue_round``) times the
    ``min_mean_samples`` in ``model``, whose ``round`` is the last that was opened.
    """

    def __init__(self, transport: Transport, table: str) -> None:
        self._transport, self._table = transport, table
        self._written: dict[str, object] = {}
        self._losses = 0

    async def write(
        self, core: Core, strangers: Mapping[str, Telemetry], storage_losses: int, sight: Sight, run: Mapping[str, Any]
    ) -> None:
        """``run`` are the facts of the run, as ``sight`` gives them."""
        if self._losses != storage_losses:
            self._written, self._losses = {}, storage_losses
        for name, telemetry in list(strangers.items()):
            await self._put(f"stranger.{name}", telemetry, partial(telemetry.model_dump, mode="json", exclude_none=True))
        await self._put("run", (run["wall_s"] // RUN_EVERY_S, run["finished"], run["stopped"]), lambda: run)
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
        await self._put("model", tuple(state.values()), lambda: state)
        for number, (name, device) in enumerate(devices):
            known = device, sight.seen(number), sight.left_out(number, run["at_s"])
            await self._put(f"device.{name}", known, partial(sight.device, number, run["at_s"]))

    async def _put(self, key: str, state: object, shown: Callable[[], object]) -> None:
        if self._written.get(key) != state:
            await self._transport.put(self._table, key, json.dumps(shown()).encode())
            self._written[key] = state


async def open_mirror(transport: Transport, table: str, replicas: int) -> Mirror:
    await transport.make_table(table, HISTORY, replicas)
    return Mirror(transport, table)
