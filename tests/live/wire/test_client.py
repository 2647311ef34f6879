"""A connection that is lost with words still unsaid can be closed and comes back; a library that has changed is refused."""

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import nats.aio.client
import pytest
from nats.aio.client import Srv

from fedtwin.errors import FedtwinError
from fedtwin.live.wire.client import Client, check_library
from fedtwin.live.wire.nats_connection import close, connect
from fedtwin.live.wire.nats_large import LARGE_BYTES, LargeTransport
from tests.live.brokers import running, until


def test_what_could_not_be_sent_does_not_keep_a_lost_connection_from_closing(tmp_path: Path) -> None:
    async def scene() -> None:
        with running(tmp_path) as broker:
            client = await connect([broker.url], name="a", inbox="a", credentials=None, insecure=False)
        assert await until(lambda: client.is_reconnecting)
        await client.publish("words", b"unsaid")
        assert client.pending_data_size > 0
        await close(client)
        assert client.is_closed

    asyncio.run(scene())


def test_words_written_while_the_connection_is_lost_harm_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        troubles: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
        with running(tmp_path) as broker:
            client = await connect([broker.url], name="a", inbox="a", credentials=None, insecure=False)
            for _ in range(3):
                assert client._transport is not None
                client._transport.close()  # type: ignore[no-untyped-call]
                client._transport.writelines([b"PUB words 6\r\n", b"unsaid\r\n"])
                await client.publish("words", b"unsaid")
                assert await until(lambda: not client.is_connected)
                assert await until(lambda: client.is_connected)
                await client.flush()
                assert isinstance(client._transport, LargeTransport)
            await close(client)
        assert not troubles

    asyncio.run(scene())


async def counted(self: nats.aio.client.Client) -> None:
    """A library that counts its inboxes up by means of its own."""
    self._resp_map = {}
    self._resp_sub_prefix = bytearray(b"_INBOX.probe.0000000000000000000001.")
    await self.subscribe(self._resp_sub_prefix.decode() + "*")


async def with_another_argument(self: Any, headers: bytes, size: int) -> None: ...


def not_a_coroutine(self: Any) -> None: ...


async def keeps_asking(self: Any, *_: Any, **__: Any) -> None:
    """A library that asks without ``publish``."""


def test_large_messages_come_as_they_were_sent_and_in_order(tmp_path: Path) -> None:
    bodies = [bytes([number]) * (1 + number * LARGE_BYTES // 2) for number in range(5)]

    async def scene(url: str) -> list[bytes]:
        sender, receiver = [await connect([url], name=name, inbox=name, credentials=None, insecure=False) for name in "ab"]
        words = await receiver.subscribe("words")
        await receiver.flush()
        await asyncio.gather(*(sender.publish("words", body, headers={"number": str(len(body))}) for body in bodies))
        heard = [await words.next_msg(timeout=30.0) for _ in bodies]
        assert [one.headers for one in heard] == [{"number": str(len(body))} for body in bodies]
        for client in (sender, receiver):
            await close(client)
        return [one.data for one in heard]

    with running(tmp_path) as broker:
        assert asyncio.run(scene(broker.url)) == bodies


CHANGED: dict[str, tuple[str, Any]] = {
    "_process_headers": ("_process_headers(headers)", None),
    "_process_headers ": ("_process_headers(headers)", with_another_argument),
    "_process_pong": ("_process_pong()", not_a_coroutine),
    "_connect_to_server": ("_connect_to_server(s)", None),
    "_send_publish": ("_send_publish(subject, reply, payload, payload_size, headers)", None),
    "new_inbox": ("could be guessed", lambda _: "_INBOX.probe.0000000000000000000001"),
    "_init_request_sub": ("could be guessed", counted),
    "request": ("could be guessed", keeps_asking),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_library_that_has_changed_is_not_connected_with(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, other = CHANGED[name]
    if other is None:
        monkeypatch.delattr(nats.aio.client.Client, name)
    else:
        monkeypatch.setattr(nats.aio.client.Client, name.strip(), other)
    check_it_is_refused(words)


def test_a_library_with_other_names_for_its_parts_is_not_connected_with(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = nats.aio.client.Client.__init__

    def renamed(self: nats.aio.client.Client) -> None:
        usual(self)
        self._awaited_pongs = self.__dict__.pop("_pongs")  # type: ignore[attr-defined]

    monkeypatch.setattr(nats.aio.client.Client, "__init__", renamed)
    check_it_is_refused("_pongs")


def test_a_library_that_moved_what_is_imported_is_not_connected_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fedtwin.live.wire.client", raising=False)
    monkeypatch.delattr("nats.nuid.TOTAL_LENGTH")
    check_it_is_refused("TOTAL_LENGTH")


def check_it_is_refused(words: str) -> None:
    with pytest.raises(FedtwinError) as refused:
        asyncio.run(connect(["nats://127.0.0.1:1"], name="a", inbox="a", credentials=None, insecure=False, keep_trying=False))
    assert words in str(refused.value) and "nats-py" in str(refused.value) and str(refused.value).count("\n") == 0


def test_a_connection_that_greeted_wrongly_is_closed_before_the_next_is_made() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"nonsense\r\n")
        greeting.append(writer)

    greeting: list[asyncio.StreamWriter] = []

    async def scene() -> None:
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        address = Srv(urlparse(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        client, writers = Client(), []
        client.options["connect_timeout"] = 5
        for _ in range(2):
            await client._connect_to_server(address)
            assert client._transport is not None
            writers.append(client._transport._io_writer)  # type: ignore[attr-defined]
        assert [writer.is_closing() for writer in writers] == [True, False]
        await until(lambda: len(greeting) == 2)
        for writer in (*greeting, writers[-1]):
            writer.close()
            with contextlib.suppress(ConnectionResetError):  # whose greeting was never read
                await writer.wait_closed()
        server.close()
        await server.wait_closed()

    asyncio.run(scene())


def test_the_installed_library_is_the_one_we_build_on() -> None:
    asyncio.run(check_library())


def test_what_was_flushed_has_been_read_by_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own ping goes out before the subscription that was asked for first."""

    async def scene(url: str) -> bytes:
        client = await connect([url], name="a", inbox="a", credentials=None, insecure=False)
        written: list[bytes] = []
        transport: Any = client._transport
        usual = transport.write

        def write(data: bytes) -> None:
            written.append(data)
            usual(data)

        monkeypatch.setattr(transport, "write", write)
        await client.subscribe("words")
        await client.flush()
        await close(client)
        return b"".join(written)

    with running(tmp_path) as broker:
        said = asyncio.run(scene(broker.url))
    assert 0 <= said.index(b"SUB words") < said.index(b"PING")
