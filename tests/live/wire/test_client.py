"""A connection that is lost with words still unsaid: it can be closed, and it comes back."""

import asyncio
from pathlib import Path
from typing import Any

from fedtwin.live.wire.transport import close, connect
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
            await close(client)
        assert not troubles

    asyncio.run(scene())
