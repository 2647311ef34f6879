"""What the tests of the live fleet share: real brokers that end with the test, and a provisioned fleet."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from nats.aio.client import Client

from fedtwin.live.broker.process import Broker, BrokerOptions
from fedtwin.live.broker.program import free_port
from fedtwin.live.broker.provisioning import provision
from fedtwin.live.wire.transport import close, connect

RUN = "main"


@contextmanager
def running(folder: Path, credentials: Path | None = None, mqtt_port: int | None = None) -> Iterator[Broker]:
    """A broker on a free port of this machine."""
    options = BrokerOptions(folder / "store", mqtt_port=mqtt_port, credentials=credentials)
    broker = Broker.start(folder / "broker", options, die_with_parent=True)
    try:
        yield broker
    finally:
        broker.stop()


@dataclass
class SecureFleet:
    """A broker with TLS for clients and MQTT, and the folder with everybody's certificates."""

    folder: Path
    broker: Broker
    mqtt_port: int

    def credentials(self, who: str) -> Path:
        return self.folder / who if who in ("edge", "evaluator") else self.folder / "devices" / who

    async def connect(self, who: str, credentials: Path | None = None) -> Client:
        credentials = credentials or self.credentials(who)
        return await connect([self.broker.url], name=who, inbox=who, credentials=credentials, insecure=False, keep_trying=False)

    @asynccontextmanager
    async def clients(self, *names: str) -> AsyncIterator[list[Client]]:
        """Connections that are closed at the end, however it comes."""
        opened: list[Client] = []
        try:
            for name in names:
                opened.append(await self.connect(name))  # noqa: PERF401
            yield opened
        finally:
            for client in opened:
                await close(client)


@contextmanager
def secure_fleet(folder: Path, devices: tuple[str, ...] = ("press-1", "press-2")) -> Iterator[SecureFleet]:
    provision(folder / "fleet", run=RUN, server_names=["edge.example"], devices=list(devices))
    port = free_port()
    with running(folder, folder / "fleet", port) as broker:
        yield SecureFleet(folder / "fleet", broker, port)


async def until(condition: Callable[[], bool], limit_s: float = 5.0) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        await asyncio.sleep(0.02)
    return condition()
