"""A broker that stores and delivers, and all the same no upload gets on: that is trouble, too."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from fedtwin.live.server import datapath
from fedtwin.live.server.datapath import NOT_RENEWED, STUCK, STUCK_S, DataPath
from fedtwin.live.views.metrics import Metrics


async def nothing(*_: object, **__: object) -> list[Any]:
    return []


class Lease:
    def __init__(self, stands: bool) -> None:
        self.stands = stands

    async def held(self) -> None:
        while not self.stands:
            await asyncio.sleep(0.01)


class Broker:
    """Of our own."""

    stopped = started = 0

    def stop(self) -> None:
        self.stopped += 1

    def restart(self) -> None:
        self.started += 1

    def room_bytes(self) -> int:
        return 2**40


def path_of(lease: Lease, broker: Broker, *, busy_s: float) -> DataPath:
    async def in_a_thread(work: Any) -> None:
        work()

    uploads: Any = SimpleNamespace(delivered=0, busy=True, busy_s=busy_s, set_right=nothing)

    class Context(SimpleNamespace):
        @property
        def may_serve(self) -> bool:
            return lease.stands

    context: Any = Context(
        clock=SimpleNamespace(monotonic_s=time.monotonic),
        ports=SimpleNamespace(in_a_thread=in_a_thread),
        transport=SimpleNamespace(connected=True, store=nothing),
        run=SimpleNamespace(now_s=lambda: 0.0),
        subjects=SimpleNamespace(pulse="pulse"),
        stopping=asyncio.Event(),
        wake=asyncio.Event(),
        lease=lease,
        path_is_well=True,
    )
    broker_: Any = broker
    path = DataPath(context, uploads, broker_, Metrics())
    storage: Any = SimpleNamespace(make_missing=nothing)
    path._storage = storage
    return path


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datapath, "ANSWER_S", 0.05)
    monkeypatch.setattr(datapath, "RESTART_AFTER_S", 0.0)


def test_a_right_to_serve_that_is_not_renewed_is_trouble_and_our_own_broker_is_started_again() -> None:
    async def main() -> None:
        broker, lease = Broker(), Lease(stands=False)
        path = path_of(lease, broker, busy_s=1.0)
        path._patience_s = 0.0
        await path._look()
        assert path.trouble == NOT_RENEWED and not path._context.path_is_well
        assert (broker.stopped, broker.started) == (1, 1)
        lease.stands = True
        await path._look()
        assert path.trouble is None and path._context.path_is_well

    asyncio.run(main())


@pytest.mark.parametrize(("busy_s", "trouble"), [(STUCK_S - 1.0, None), (STUCK_S + 1.0, STUCK)])
def test_an_upload_that_is_never_finished_is_trouble(busy_s: float, trouble: str | None) -> None:
    async def main() -> None:
        path = path_of(Lease(stands=True), Broker(), busy_s=busy_s)
        await path._look()
        assert path.trouble == trouble

    asyncio.run(main())
