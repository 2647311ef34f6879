"""A run whose ledger is at the broker, before it is opened here: its lease is taken, and the folder has all that happened."""

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from fedtwin.live.event_loop import StopSignals, run_until_stopped
from fedtwin.live.logs import say
from fedtwin.live.run.following import Follower
from fedtwin.live.run.past import has_ledger
from fedtwin.live.server.lease import LOOK_S, Lease
from fedtwin.live.server.place import Place
from fedtwin.live.wire.box import Box
from fedtwin.live.wire.ports import Disk, MissingError, Ports
from fedtwin.live.wire.protocol import Subjects
from fedtwin.live.wire.real import DISK, REAL
from fedtwin.live.wire.tape import Tape
from fedtwin.live.wire.tasks import unless_stopped
from fedtwin.live.wire.troubles import TROUBLES, words_of
from fedtwin.records.files import CONFIG_NAME
from fedtwin.records.lock import Lock


def caught_up(folder: Path, run: str, place: Place, lock: Lock, signals: StopSignals, *, standby: bool) -> bool:
    """Waits with ``standby`` while another edge server serves, or until there is a run; else that is an error.

    The lease is then this folder's, and ``lock`` still held for who opens it. False where it was stopped before.
    """

    def make() -> tuple[Coroutine[Any, Any, bool], Any]:
        handover = Handover(folder, run, place, standby=standby)
        return handover.run(), handover.stop.set

    done = False
    try:
        done = run_until_stopped(make, signals)
    finally:
        if not done:
            lock.release()
    return done


class Handover:
    """``run`` is False where it was asked to ``stop`` before."""

    def __init__(self, folder: Path, run: str, place: Place, *, standby: bool, ports: Ports = REAL, disk: Disk = DISK) -> None:
        self._folder, self._run, self._place, self._standby = folder, run, place, standby
        self._ports, self._disk = ports, disk
        self.stop = asyncio.Event()

    async def run(self) -> bool:
        place, name = self._place, self._run
        credentials = place.credentials_of("edge")
        connecting = self._ports.connect(place.servers, name="edge", credentials=credentials, insecure=place.insecure)
        transport = await unless_stopped(connecting, self.stop)
        if transport is None:
            return False
        subjects = Subjects(name)
        tape, box = Tape(transport, subjects.ledger_tape, subjects.ledger), Box(transport, subjects.files_bucket)
        self._follower = Follower(self._folder, tape, box, self._disk)
        lease = Lease(transport, name, self._folder, 1, self._ports)
        try:
            if await unless_stopped(self._until_it_works(lease), self.stop) is None:
                return False
            if self._follower.finished:
                await lease.end()
            return True
        finally:
            await transport.close()

    async def _until_it_works(self, lease: Lease) -> bool:
        """Whatever the broker goes through meanwhile."""
        while True:
            try:
                await self._until_there_is_a_run()
                await lease.take(standby=self._standby, meanwhile=self._follow)
                if await self._follow():
                    await self._follower.fetch_files()
                elif not self._can_be_served:  # the broker has lost what we have no copy of: the run is another folder's
                    await lease.end()
                    continue
                return True
            except TROUBLES as error:
                say(logging.DEBUG, "the broker is not ready yet", reason=words_of(error))
                await asyncio.sleep(LOOK_S)

    async def _until_there_is_a_run(self) -> None:
        told = False
        while not self._can_be_served and not await self._follow():
            if not told:
                say(logging.INFO, "standing by: there is no ledger of the run at the broker yet", run=self._run)
                told = True
            await asyncio.sleep(LOOK_S)

    @property
    def _can_be_served(self) -> bool:
        """Also where the broker has lost the run. Who has followed it has lines of its ledger; settings and model come last."""
        return has_ledger(self._folder) and (self._folder / CONFIG_NAME).exists()

    async def _follow(self) -> bool:
        """False where the broker has no ledger: then the folder has all there is."""
        try:
            await self._follower.catch_up()
        except MissingError:
            return False
        return self._follower.lines > 0
