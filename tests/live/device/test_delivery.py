"""What an upload took is what the attempt that succeeded took."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedtwin.live.device import delivery
from fedtwin.live.device.delivery import Attempt, Delivery
from fedtwin.live.wire.nats_transport import connect
from fedtwin.live.wire.ports import NoAnswerError
from fedtwin.live.wire.protocol import Subjects
from fedtwin.live.wire.real import REAL
from tests.live.brokers import running

TOKEN = "0" * 32


class Broker:
    """Plays the broker: every attempt takes its time, and an error if it has one; ``reconnects`` counts what broke."""

    def __init__(self, *attempts: tuple[float, bool]) -> None:
        self.attempts = list(attempts)
        self.reconnects = 0
        self.now_s, self.breaks_during_the_last = 0.0, False
        self.max_payload, self.closed = 2**20, False

    def monotonic_s(self) -> float:
        return self.now_s

    async def store(self, *_: object, **__: object) -> None:
        took_s, works = self.attempts.pop(0)
        self.now_s += took_s
        self.reconnects += self.breaks_during_the_last or not works
        if not works:
            raise NoAnswerError("no answer")


def uploaded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    async def pause(seconds: float) -> None:
        broker.now_s += seconds

    monkeypatch.setattr(delivery, "asyncio", SimpleNamespace(sleep=pause, create_task=asyncio.create_task, wait=asyncio.wait))
    played: Any = broker
    delivers = Delivery(played, Subjects("main"), "d0", replace(REAL, clock=played))
    name, attempt = asyncio.run(delivers.upload(TOKEN, b"model"))
    assert name is None and not broker.attempts
    return attempt


def test_attempts_that_failed_and_the_pauses_are_not_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker((5.0, False), (5.0, False), (0.25, True))
    attempt = uploaded(broker, monkeypatch)
    assert attempt.wall_s == pytest.approx(0.25) and attempt.steady
    assert broker.now_s > 10.25


def test_an_attempt_in_which_the_connection_broke_is_known_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker((3.0, True))
    broker.breaks_during_the_last = True
    assert not uploaded(broker, monkeypatch).steady


@asynccontextmanager
async def slow_link(port: int, bytes_per_s: float) -> AsyncIterator[tuple[str, list[int]]]:
    """An address that leads to the port, and how many bytes came that way."""
    passed, ended = [0], asyncio.Event()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float) -> None:
        while data := await reader.read(2048):
            await asyncio.sleep(len(data) / rate)
            passed[0] += len(data) if rate == bytes_per_s else 0
            writer.write(data)
        writer.close()

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
        pumps = pump(reader, to_writer, bytes_per_s), pump(to_reader, writer, 1e9)
        await asyncio.gather(*pumps, return_exceptions=True)
        ended.set()

    server = await asyncio.start_server(through, "127.0.0.1", 0, limit=4096)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", passed
    finally:
        server.close()
        await asyncio.wait_for(ended.wait(), 60.0)


@pytest.mark.parametrize("objects", [False, True])
def test_a_link_that_needs_longer_than_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, objects: bool
) -> None:
    """It is waited for as long as bytes move; nothing is sent twice."""
    monkeypatch.setattr(delivery, "PUBLISH_TIMEOUT_S", 1.0)
    size, bytes_per_s = 150_000, 50_000.0
    subjects = Subjects("main")

    async def uploaded_slowly(url: str) -> tuple[Attempt, int]:
        async with slow_link(int(url.rpartition(":")[2]), bytes_per_s) as (address, passed):
            transport = await connect([address], name="d0", credentials=None, insecure=False)
            try:
                if objects:
                    await transport.make_bucket(subjects.uploads_bucket("d0"), 10 * size)
                    transport.client._max_payload = 2**16
                else:
                    await transport.client.jetstream().add_stream(name="uploads", subjects=[subjects.upload("*")])
                _, attempt = await Delivery(transport, subjects, "d0").upload(TOKEN, bytes(size))
                return attempt, passed[0]
            finally:
                await transport.close()

    with running(tmp_path) as broker:
        attempt, passed = asyncio.run(uploaded_slowly(broker.url))
    assert attempt.steady and attempt.wall_s > 1.0
    assert passed < 1.2 * size
    assert "the link is too slow, or the broker hangs" in caplog.text
