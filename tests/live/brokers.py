"""What the tests of the live fleet share: real brokers that end with the test, and a provisioned fleet."""

import asyncio
import itertools
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nats.aio.client import Client

from fedtwin.live.broker.process import Broker, local_broker
from fedtwin.live.broker.provisioning import provision
from fedtwin.live.wire.nats_connection import close, connect

RUN = "main"
LIMIT_S = 60.0
PORTS = itertools.count(12_000 + os.getpid() * 61 % 18_000)


def own_port() -> int:
    """A free port: no other process of the tests is given it here, and the system gives higher ones to whoever asks it."""
    for port in PORTS:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("the ports do not end")


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The process does nothing in here. SIGSTOP is on its way when kill() returns; every thread has to arrive at it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        end = time.monotonic() + LIMIT_S
        while not _states(pid) <= {"T", "Z", "X"}:
            assert time.monotonic() < end, f"process {pid} does not stop"
            time.sleep(0.005)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _states(pid: int) -> set[str]:
    states = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread that has ended
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states


def running(folder: Path, credentials: Path | None = None, mqtt_port: int | None = None) -> AbstractContextManager[Broker]:
    """A broker on a free port of this machine."""
    return local_broker(folder / "broker", mqtt_port=mqtt_port, credentials=credentials)


@dataclass
class SecureFleet:
    """A broker with TLS for clients and MQTT, and the folder with everybody's certificates."""

    folder: Path
    broker: Broker
    mqtt_port: int

    def credentials(self, who: str) -> Path:
        return self.folder / who if who in ("edge", "evaluator", "operator", "viewer") else self.folder / "devices" / who

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
    port = own_port()
    with running(folder, folder / "fleet", port) as broker:
        yield SecureFleet(folder / "fleet", broker, port)


async def until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        await asyncio.sleep(0.02)
    return condition()
