"""A broker for the conformance suite, in memory or the real one, with what a test does to it."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fedtwin.live.broker.permissions import permissions_of, role_permissions
from fedtwin.live.broker.process import Broker
from fedtwin.live.wire.ports import Transport
from tests.live.brokers import RUN, running, secure_fleet
from tests.live.simulated.broker import MemoryBroker
from tests.live.simulated.loop import run_virtually
from tests.live.simulated.transport import connector
from tests.live.simulated.world import LoopClock, SeededChance

NUMBERS = itertools.count(1)
Scene = Callable[[], Coroutine[Any, Any, None]]
OnReconnect = Callable[[], Awaitable[None]]


class Bench(Protocol):
    max_payload: int

    def play(self, scene: Scene) -> None: ...

    async def connect(self, name: str, on_reconnect: OnReconnect | None = None) -> Transport: ...

    def kill(self) -> None: ...

    def start_again(self) -> None: ...


class MemoryBench:
    def __init__(self, *, secure: bool = False) -> None:
        self._broker = MemoryBroker(random.Random(1), LoopClock(), rights=_rights if secure else None)
        self._connect = connector(self._broker, SeededChance(random.Random(2)))
        self.max_payload = self._broker.max_payload

    def play(self, scene: Scene) -> None:
        run_virtually(scene())

    async def connect(self, name: str, on_reconnect: OnReconnect | None = None) -> Transport:
        return await self._connect(
            ["nats://127.0.0.1:4222"], name=name, credentials=None, insecure=False, on_reconnect=on_reconnect
        )

    def kill(self) -> None:
        self._broker.kill()

    def start_again(self) -> None:
        self._broker.restart()


def _rights(name: str) -> dict[str, Any]:
    return role_permissions(name, RUN) if name in ("edge", "evaluator") else permissions_of(name, RUN)


class NatsBench:
    def __init__(self, broker: Broker, credentials: Callable[[str], Path | None]) -> None:
        self._broker, self._credentials = broker, credentials
        self.max_payload = broker.options.max_payload_bytes

    def play(self, scene: Scene) -> None:
        asyncio.run(scene())

    async def connect(self, name: str, on_reconnect: OnReconnect | None = None) -> Transport:
        from fedtwin.live.wire.nats_transport import connect

        return await connect(
            [self._broker.url], name=name, credentials=self._credentials(name), insecure=False, on_reconnect=on_reconnect
        )

    def kill(self) -> None:
        self._broker.stop()

    def start_again(self) -> None:
        self._broker.restart()


@contextmanager
def bench(kind: str, folder: Path, *, secure: bool = False) -> Iterator[Bench]:
    if kind == "memory":
        yield MemoryBench(secure=secure)
    elif secure:
        with secure_fleet(folder) as fleet:
            yield NatsBench(fleet.broker, fleet.credentials)
    else:
        with running(folder) as broker:
            yield NatsBench(broker, lambda _: None)
