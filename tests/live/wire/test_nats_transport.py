"""What NATS says becomes what ``ports`` promises: our errors, in words; what is stored is told once, and by its settings."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import nats.errors
import pytest

from fedtwin.live.wire.nats_transport import OURS, NatsTransport, connect
from fedtwin.live.wire.ports import (
    Incoming,
    MissingError,
    NoAnswerError,
    NobodyThereError,
    Queue,
    Shelf,
    TooManyWaitError,
    TransportError,
)
from tests.live.brokers import running, until

QUEUE = Queue("words", ("word.*",), most_waiting=2, most_message_bytes=1000)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.url


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[NatsTransport]:
    transport = await connect([url], name="edge", credentials=None, insecure=False)
    try:
        yield transport
    finally:
        for shelf in await transport.shelves():
            prefix = {"queue": "", "table": "KV_", "bucket": "OBJ_"}[shelf.kind]
            await transport.client.jetstream().delete_stream(prefix + shelf.name)
        await transport.close()
        assert transport.closed and not transport.connected


def test_nobody_there_no_answer_and_what_is_missing(url: str) -> None:
    async def mute(message: Incoming) -> None:
        pass

    async def scene() -> None:
        async with connected(url) as transport:
            with pytest.raises(NobodyThereError, match="no responders"):
                await transport.request("nobody", b"?", timeout_s=5.0)
            await transport.subscribe("mute", mute)
            with pytest.raises(NoAnswerError, match="timeout"):
                await transport.request("mute", b"?", timeout_s=0.05)
            with pytest.raises(NobodyThereError):
                await transport.store("word.a", b"")
            for asked in (transport.update_queue(QUEUE), transport.queue_is(QUEUE), transport.consumes_all("words")):
                with pytest.raises(MissingError):
                    await asked
            with pytest.raises(MissingError):
                await transport.put_object("bucket", "name", b"")

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (nats.errors.ConnectionClosedError(), TransportError),
        (ConnectionResetError("gone"), TransportError),
        (TimeoutError(), NoAnswerError),
        (nats.errors.FlushTimeoutError(), NoAnswerError),
    ],
)
def test_whatever_goes_wrong_is_ours_and_has_words(theirs: Exception, ours: type[TransportError]) -> None:
    with pytest.raises(TransportError, match=r".") as raised, OURS:
        raise theirs
    assert type(raised.value) is ours


def test_a_queue_takes_what_it_may_and_knows_a_message_again(url: str) -> None:
    heard: list[tuple[bytes, str, float]] = []

    async def hear(message: Incoming) -> None:
        heard.append((message.data, message.headers.get("Tone", ""), message.stored_wall_s))
        if message.data != b"kept":
            await message.ack()

    async def scene() -> None:
        async with connected(url) as transport:
            await transport.make_queue(QUEUE)
            for _ in range(3):
                await transport.store("word.a", b"one", message_id="1", headers={"Tone": "low"})
            await transport.store("word.a", b"kept")
            with pytest.raises(TooManyWaitError):
                await transport.store("word.a", b"three")
            await transport.delete_consumer("words")
            listening = await transport.consume("words", hear, redeliver_s=30.0)
            assert await until(lambda: len(heard) == 2)
            assert [(data, tone) for data, tone, _ in heard] == [(b"one", "low"), (b"kept", "")] and heard[0][2] > 1.7e9
            while await transport.waiting("words") != 1:
                await asyncio.sleep(0.01)
            await transport.delete_consumer("words")
            await listening.unsubscribe()
            await listening.unsubscribe()
            await transport.consume("words", hear, redeliver_s=30.0)
            assert await until(lambda: len(heard) == 3) and heard[2][0] == b"kept", "it comes again at once"
            assert await transport.consumes_all("words")

    asyncio.run(scene())


def test_a_message_that_was_in_no_queue_is_not_taken_for_one(url: str) -> None:
    """Anybody may direct one into the subscription of the edge server: it must not end by it."""
    heard: list[Incoming] = []

    async def hear(message: Incoming) -> None:
        heard.append(message)

    async def scene() -> None:
        async with connected(url) as transport:
            await transport.subscribe("word.*", hear)
            await transport.client.publish("word.a", b"", reply="forged.reply")
            await transport.publish("word.a", b"")
            assert await until(lambda: len(heard) == 2)
            for message in heard:
                with pytest.raises(TransportError):
                    assert message.stored_wall_s

    asyncio.run(scene())


def test_somebody_elses_hand_is_seen(url: str) -> None:
    async def scene() -> None:
        async with connected(url) as transport:
            await transport.make_queue(QUEUE)
            assert await transport.queue_is(QUEUE)
            for other in (replace(QUEUE, most_waiting=3), replace(QUEUE, subjects=("other.*",))):
                await transport.update_queue(other)
                assert not await transport.queue_is(QUEUE) and await transport.queue_is(other)

    asyncio.run(scene())


def test_what_is_kept_is_found_by_its_kind(url: str) -> None:
    async def scene() -> None:
        async with connected(url) as transport:
            for _ in range(2):
                await transport.make_bucket("objects", 2**20)
                await transport.make_table("twin", 4)
            await transport.make_queue(QUEUE)
            await transport.put("twin", "model", b"7")
            await transport.put_object("objects", "name", b"body")
            assert await transport.get_object("objects", "name", 4) == b"body"
            assert await transport.shelves() == {Shelf("queue", "words"), Shelf("table", "twin"), Shelf("bucket", "objects")}
            found = await (await transport.client.jetstream().key_value("twin")).get("model")
            assert found.value == b"7"

    asyncio.run(scene())
