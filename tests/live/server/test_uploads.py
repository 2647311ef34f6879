"""The stream is lost while uploads are in hand: what is here is mixed in, and nobody else's upload is struck."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fedtwin.live.broker.process import Broker
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.uploads import Uploads
from fedtwin.live.wire.nats_transport import NatsTransport, connect
from fedtwin.live.wire.protocol import TOKEN_HEADER
from tests.live.brokers import running, until
from tests.live.run.test_live_run import CODEC, begun, dispatch, done_of, weights

Scene = Callable[[NatsTransport, Broker], Coroutine[Any, Any, None]]


def played(folder: Path, scene: Scene) -> None:
    async def connected() -> None:
        transport = await connect([broker.url], name="edge", credentials=None, insecure=False)
        try:
            await scene(transport, broker)
        finally:
            await transport.close()

    with running(folder) as broker:
        asyncio.run(connected())


async def store_is_lost(transport: NatsTransport, broker: Broker) -> None:
    reconnects = transport.reconnects
    broker.stop()
    shutil.rmtree(broker.options.store)
    broker.restart()
    assert await until(lambda: transport.reconnects > reconnects and transport.connected)


def test_bytes_in_hand_are_mixed_in_and_nobody_elses_are_struck(tmp_path: Path) -> None:
    """The new stream counts from 1 again, as the old one did."""

    async def scene(transport: NatsTransport, broker: Broker) -> None:
        live = begun(tmp_path / "run")
        first, second = dispatch(live), dispatch(live)
        one, other = (live.core.names[sent.device] for sent in (first, second))
        context = EdgeContext(live, transport)
        uploads, body = Uploads(context), CODEC.encode(weights(1.0))
        await uploads.open()
        await transport.store(context.subjects.upload(one), body, headers={TOKEN_HEADER: first.token})
        assert await until(lambda: first.token in uploads._held)

        await store_is_lost(transport, broker)
        await uploads.make_stream()
        await uploads.consume_anew()
        await transport.store(context.subjects.upload(other), body, headers={TOKEN_HEADER: second.token})
        assert await until(lambda: second.token in uploads._held)
        await transport.store(context.subjects.result(one), done_of(first).encoded())
        assert await until(lambda: live.core.applied == 1), "the bytes were in hand"
        while (stored := (await transport.client.jetstream().stream_info(context.subjects.stream)).state.messages) > 1:
            await asyncio.sleep(0.02)
        assert stored == 1, "the other's upload is on disk"

        await uploads.consume_anew()  # as after a kill
        assert await until(lambda: second.token in uploads._held)
        await transport.store(context.subjects.result(other), done_of(second).encoded())
        assert await until(lambda: live.core.applied == 2)
        live.close()

    played(tmp_path, scene)
