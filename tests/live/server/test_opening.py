"""The broker is killed while the edge server opens its streams: it is started again, and the run opens."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fedtwin.live.run import opening
from fedtwin.live.server import edge
from fedtwin.live.server.edge import EdgeOptions, EdgeServer
from fedtwin.live.views.mirror import open_mirror
from fedtwin.live.wire.ports import NoAnswerError
from tests.live.brokers import running, until
from tests.live.run.test_live_run import CODEC, config_of, weights


def test_killed_while_the_edge_server_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills: list[int] = []

    async def killed_once(*arguments: Any) -> Any:
        if not kills:
            kills.append(broker.pid)
            os.kill(broker.pid, signal.SIGKILL)
            raise NoAnswerError("killed")
        return await open_mirror(*arguments)

    async def scene() -> bool:
        server = EdgeServer(live, EdgeOptions([broker.url], broker))
        serving = asyncio.create_task(server.serve())
        assert await until(lambda: server._opened or serving.done())
        server.stop()
        return await serving

    monkeypatch.setattr(edge, "open_mirror", killed_once)
    with running(tmp_path) as broker:
        live = opening.begin(tmp_path / "run", config_of(), "main", CODEC.encode(weights(0.0)))
        assert asyncio.run(scene()) is False
        assert broker.alive() and kills != [broker.pid]
        live.close()
