"""The stream is lost while uploads are in hand: what is here is mixed in, and nobody else's upload is struck."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from fedtwin.live.broker.process import Broker
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.uploads import Uploads
from fedtwin.live.wire.protocol import TOKEN_HEADER
from fedtwin.live.wire.transport import close, connect
from tests.live.brokers import running, until
from tests.live.run.test_live_run import CODEC, begun, dispatch, done_of, weights

Scene = Callable[[Client, Broker], Coroutine[Any, Any, None]]


def played(folder: Path, scene: Scene) -> None:
    async def connected() -> None:
        client = await connect([broker.url], name="edge", inbox="edge", credentials=None, insecure=False)
        try:
            await scene(client, broker)
        finally:
            await close(client)

    with running(folder) as broker:
        asyncio.run(connected())


async def store_is_lost(client: Client, broker: Broker) -> None:
    reconnects = client.stats["reconnects"]
    broker.stop()
    shutil.rmtree(broker.options.store)
    broker.restart()
    assert await until(lambda: client.stats["reconnects"] > reconnects and client.is_connected)


def test_bytes_in_hand_are_mixed_in_and_nobody_elses_are_struck(tmp_path: Path) -> None:
    """The new stream counts from 1 again, as the old one did."""

    async def scene(client: Client, broker: Broker) -> None:
        live = begun(tmp_path / "run")
        first, second = dispatch(live), dispatch(live)
        one, other = (live.core.names[sent.device] for sent in (first, second))
        context = EdgeContext(live, client)
        uploads, body = Uploads(context), CODEC.encode(weights(1.0))
        await uploads.open()
        await context.js.publish(context.subjects.upload(one), body, headers={TOKEN_HEADER: first.token})
        assert await until(lambda: first.token in uploads._held)

        await store_is_lost(client, broker)
        await uploads.make_stream()
        await uploads.consume_anew()
        await context.js.publish(context.subjects.upload(other), body, headers={TOKEN_HEADER: second.token})
        assert await until(lambda: second.token in uploads._held)
        await context.js.publish(context.subjects.result(one), done_of(first).encoded())
        assert await until(lambda: live.core.applied == 1), "the bytes were in hand"
        while (stored := (await context.js.stream_info(context.subjects.stream)).state.messages) > 1:
            await asyncio.sleep(0.02)
        assert stored == 1, "the other's upload is on disk"

        await uploads.consume_anew()  # as after a kill
        assert await until(lambda: second.token in uploads._held)
        await context.js.publish(context.subjects.result(other), done_of(second).encoded())
        assert await until(lambda: live.core.applied == 2)
        live.close()

    played(tmp_path, scene)
