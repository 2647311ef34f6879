"""Whoever lives in a simulated fleet: from a start to a death, and started again."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fedtwin.errors import FedtwinError
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.wire.ports import Ports
from fedtwin.records.lock import Lock
from tests.live.simulated.disk import FaultyDisk, KilledError
from tests.live.simulated.loop import Process, VirtualLoop
from tests.live.simulated.transport import MemoryTransport, connector

if TYPE_CHECKING:
    from tests.live.simulated.fleet import Fleet

LOG = logging.getLogger("fedtwin.live")
AGAIN_S = 1.0


class Supervised:
    """Somebody who is started again whenever it dies or ends."""

    def __init__(self, fleet: "Fleet", name: str, live: Callable[["Life"], Coroutine[Any, Any, bool]]) -> None:
        self._fleet, self.name, self._live = fleet, name, live
        self.life = Life(fleet, name)
        self.down_s = 0.0
        self.deaths = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._for_ever())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.life.end(self._fleet.loop)

    async def _for_ever(self) -> None:
        loop = self._fleet.loop
        while True:
            life = self.life = Life(self._fleet, self.name)
            work = loop.create_task(self._live(life), context=life.process.context)
            dies = loop.create_task(life.killed.wait())
            await asyncio.wait([work, dies], return_when=asyncio.FIRST_COMPLETED)
            dies.cancel()
            if life.killed.is_set():
                self.deaths += 1
                await life.end(loop)
                with suppress(Exception, asyncio.CancelledError, KilledError):
                    work.result()
                await asyncio.sleep(self.down_s)
                continue
            try:
                ended = work.result()
            except FedtwinError as error:
                life.process.context.run(LOG.error, "error: %s", error)
                self._fleet.ended_by(self.name, error)
                ended = False
            except Exception as error:
                loop.call_exception_handler({"message": f"the end of {self.name}, with a traceback", "exception": error})
                ended = False
            await life.end(loop)
            if ended:
                return
            await asyncio.sleep(AGAIN_S)


class Life:
    """From a start to a death: a process, its connections, its disk, its ports."""

    def __init__(self, fleet: "Fleet", name: str) -> None:
        self.fleet, self.process = fleet, Process(name)
        self.killed = asyncio.Event()
        self.process.dies = self.kill
        self.disk = FaultyDisk(self.process, fleet.chance)
        self.disk.full = name in fleet.full_disks
        self.run: LiveRun | None = None
        self.lock: Lock | None = None
        self._transports: list[MemoryTransport] = []
        connect = connector(fleet.broker, fleet.drawn, fleet.stored)

        async def connected(servers: list[str], **options: Any) -> MemoryTransport:
            transport = await connect(servers, **{**options, "name": name})
            self._transports.append(transport)
            return transport

        self.ports = Ports(connect=connected, clock=fleet.clock, chance=fleet.drawn, in_a_thread=self._in_a_thread)

    async def _in_a_thread(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(self.fleet.chance.uniform(*self.fleet.thread_s))
        return function(*args, **kwargs)

    def kill(self) -> None:
        """As kill -9: from now on nothing it does is seen outside."""
        self.process.dead = True
        for transport in self._transports:
            transport.vanish()
        self.killed.set()

    async def end(self, loop: VirtualLoop) -> None:
        self.process.dead = True
        for transport in self._transports:
            transport.vanish()
        await loop.kill(self.process)
        if self.run is not None:
            with suppress(KilledError, OSError):
                self.run.close()
        if self.lock is not None:
            self.lock.release()
