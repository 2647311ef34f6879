"""The edge server's first connection to the broker, which is looked after meanwhile."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from fedtwin.live.logs import say
from fedtwin.live.server.datapath import NOT_REACHED, RESTART_AFTER_S, TELL_EVERY_S
from fedtwin.live.views.metrics import Metrics
from fedtwin.live.wire.ports import BrokerProcess, Ports, Transport
from fedtwin.live.wire.tasks import end_tasks


class Connecting:
    """``trouble``: that the broker is not reached, once that is clear."""

    def __init__(self, servers: list[str], broker: BrokerProcess | None, metrics: Metrics, ports: Ports) -> None:
        self._servers, self._broker, self._metrics, self._ports = servers, broker, metrics, ports
        self.trouble: str | None = None

    async def connected(
        self, *, credentials: Path | None, insecure: bool, on_reconnect: Callable[[], Awaitable[None]]
    ) -> Transport:
        """Tried until it works."""
        connecting = asyncio.create_task(
            self._ports.connect(
                self._servers,
                name="edge",
                credentials=credentials,
                insecure=insecure,
                on_reconnect=on_reconnect,
            )
        )
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait([connecting, watching], return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                watching.result()  # a broker that cannot be started again
            return await connecting
        finally:
            await end_tasks([connecting, watching])

    async def _watch(self) -> None:
        """It is said that nothing comes through; a broker of ours that hangs, or is gone, is started again."""
        broker, in_a_thread = self._broker, self._ports.in_a_thread
        await asyncio.sleep(RESTART_AFTER_S)
        while True:
            self.trouble = NOT_REACHED
            say(logging.ERROR, "no upload comes through", reason=NOT_REACHED)
            if broker is not None and not await in_a_thread(broker.answers):
                await in_a_thread(broker.stop)
                broker.restart()
                say(logging.WARNING, "the broker did not answer and was started again")
                self._metrics.repaired("broker")
            await asyncio.sleep(TELL_EVERY_S)
