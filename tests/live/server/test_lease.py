"""The lease of a run name, on a real broker: held by one, given back, left by a crash, lost by a long sleep."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from fedtwin.errors import ServedElsewhereError, TakenOverError
from fedtwin.live.broker.process import Broker
from fedtwin.live.server import lease as leases
from fedtwin.live.server.lease import Lease, place_of
from fedtwin.live.wire import tape
from fedtwin.live.wire.nats_transport import NatsTransport
from tests.live.server.test_uploads import played, store_is_lost

SHORT_S = 1.0


def lease_of(transport: NatsTransport, folder: Path) -> Lease:
    folder.mkdir(exist_ok=True)
    return Lease(transport, "main", folder, 1, renew_s=0.05)


@pytest.fixture(autouse=True)
def _a_short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_S", SHORT_S)
    monkeypatch.setattr(tape, "ANSWER_S", 0.2)
    monkeypatch.setattr(leases, "LOOK_S", 0.1)


def test_one_holds_it_another_is_refused_or_waits_until_it_is_given_back(tmp_path: Path) -> None:
    async def scene(transport: NatsTransport, broker: Broker) -> None:
        first, second = lease_of(transport, tmp_path / "first"), lease_of(transport, tmp_path / "second")
        await first.take(standby=False)
        keeping = asyncio.create_task(first.keep_for_ever())
        with pytest.raises(ServedElsewhereError, match=r"run 'main' is served by .*/first'.*--run NAME.*--standby"):
            await second.take(standby=False)
        assert first.stands and not second.stands
        waiting = asyncio.create_task(second.take(standby=True))
        await asyncio.sleep(2 * SHORT_S)
        await store_is_lost(transport, broker)
        await first.held()
        assert not waiting.done() and not keeping.done()
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        await first.end()
        await waiting
        assert second.stands

    played(tmp_path, scene)


def test_who_sleeps_longer_than_it_lasts_loses_it_to_a_standby_and_hears_so_before_it_does_anything(tmp_path: Path) -> None:
    async def scene(transport: NatsTransport, broker: Broker) -> None:  # noqa: ARG001
        first, second = lease_of(transport, tmp_path / "first"), lease_of(transport, tmp_path / "second")
        await first.take(standby=False)
        await second.take(standby=True)
        assert second.stands and not first.stands
        held = asyncio.create_task(first.held())
        with pytest.raises(TakenOverError, match=r"'main' was taken over by another edge server, .*/second'"):
            await first.keep_for_ever()
        assert not held.done()
        held.cancel()

    played(tmp_path, scene)


def test_a_crash_blocks_its_own_folder_not_at_all_and_others_only_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(transport: NatsTransport, broker: Broker) -> None:  # noqa: ARG001
        await lease_of(transport, tmp_path / "first").take(standby=False)
        monkeypatch.setattr(leases, "LEASE_S", 1e9)
        await lease_of(transport, tmp_path / "first").take(standby=False)
        monkeypatch.setattr(leases, "LEASE_S", SHORT_S)
        await lease_of(transport, tmp_path / "second").take(standby=False)

    played(tmp_path, scene)


def test_a_copy_of_a_folder_is_another_place(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    place = place_of(tmp_path / "first", "one")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    assert place_of(tmp_path / "first", "two") == place == "one"
    assert place_of(tmp_path / "copy", "two") == "two" == place_of(tmp_path / "copy", "three")
