"""The lease of a run name, on virtual time: held by one, given back, left by a crash, lost by a long sleep."""

import asyncio
import random
import shutil
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedtwin.errors import ServedElsewhereError, TakenOverError
from fedtwin.live.server.lease import LEASE_S, LOOK_S, Lease, place_of
from fedtwin.live.wire.real import REAL
from fedtwin.live.wire.troubles import TROUBLES
from tests.live.simulated.broker import MemoryBroker
from tests.live.simulated.loop import run_virtually
from tests.live.simulated.transport import connector
from tests.live.simulated.world import LoopClock, SeededChance

LeaseOf = Callable[[str], Lease]


def played(folder: Path, scene: Callable[[LeaseOf, MemoryBroker], Coroutine[Any, Any, None]]) -> None:
    """Two edge servers by the names of their folders, each with a connection of its own."""
    broker, chance = MemoryBroker(random.Random(1), LoopClock()), SeededChance(random.Random(2))
    connect, ports = connector(broker, chance), replace(REAL, clock=LoopClock(), chance=chance)

    async def main() -> None:
        made = {name: await connect(["memory"], name=name, credentials=None, insecure=False) for name in ("first", "second")}

        def lease_of(name: str) -> Lease:
            (folder / name).mkdir(exist_ok=True)
            return Lease(made[name], "main", folder / name, 1, ports)

        await scene(lease_of, broker)
        for transport in made.values():
            await transport.close()

    run_virtually(main())


async def taken(lease: Lease) -> None:
    while True:
        with suppress(*TROUBLES):
            return await lease.take(standby=True)
        await asyncio.sleep(LOOK_S)


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_one_holds_it_another_is_refused_or_waits_until_it_is_given_back(tmp_path: Path) -> None:
    async def scene(lease_of: LeaseOf, broker: MemoryBroker) -> None:
        first, second = lease_of("first"), lease_of("second")
        await first.take(standby=False)
        keeping = asyncio.create_task(first.keep_for_ever())
        with pytest.raises(ServedElsewhereError, match=r"run 'main' is served by .*/first'.*--run NAME.*--standby"):
            await second.take(standby=False)
        assert first.stands and not second.stands
        waiting = asyncio.create_task(taken(second))
        await asyncio.sleep(3 * LEASE_S)
        broker.kill()
        broker.empty()
        await asyncio.sleep(2 * LEASE_S)
        assert not first.stands
        broker.restart()
        await first.held()
        await asyncio.sleep(3 * LEASE_S)
        assert first.stands and not waiting.done() and not keeping.done()
        await ended(keeping)
        await first.end()
        begun = asyncio.get_running_loop().time()
        await waiting
        assert second.stands and asyncio.get_running_loop().time() - begun < 1.0

    played(tmp_path, scene)


def test_who_sleeps_longer_than_it_lasts_loses_it_to_a_standby_and_hears_so_before_it_does_anything(tmp_path: Path) -> None:
    async def scene(lease_of: LeaseOf, broker: MemoryBroker) -> None:  # noqa: ARG001
        first, second = lease_of("first"), lease_of("second")
        await first.take(standby=False)
        begun = asyncio.get_running_loop().time()
        await second.take(standby=True)
        assert second.stands and not first.stands
        assert LEASE_S < asyncio.get_running_loop().time() - begun < 5.0
        held = asyncio.create_task(first.held())
        with pytest.raises(TakenOverError, match=r"'main' was taken over by another edge server, .*/second'"):
            await first.keep_for_ever()
        assert not held.done()
        await ended(held)

    played(tmp_path, scene)


def test_a_crash_blocks_its_own_folder_not_at_all_and_others_only_for_a_while(tmp_path: Path) -> None:
    async def scene(lease_of: LeaseOf, broker: MemoryBroker) -> None:  # noqa: ARG001
        await lease_of("first").take(standby=False)
        begun = asyncio.get_running_loop().time()
        await lease_of("first").take(standby=False)
        again = asyncio.get_running_loop().time()
        await lease_of("second").take(standby=False)
        assert again - begun < 0.1 < LEASE_S < asyncio.get_running_loop().time() - again < 5.0

    played(tmp_path, scene)


def test_a_copy_of_a_folder_is_another_place(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    place = place_of(tmp_path / "first", "one")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    assert place_of(tmp_path / "first", "two") == place == "one"
    assert place_of(tmp_path / "copy", "two") == "two" == place_of(tmp_path / "copy", "three")
