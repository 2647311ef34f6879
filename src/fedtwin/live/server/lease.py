"""The right to serve a run on a broker: one edge server at a time, by the run's name.

The holder writes the lease anew all the time. Who watches and sees no change for ``LEASE_S``, while the broker answers, may
take it; nobody compares clocks. The holder itself counts from before it wrote, so it stops before another can begin.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fedtwin.errors import ServedElsewhereError, TakenOverError
from fedtwin.files import write_whole
from fedtwin.live.logs import say
from fedtwin.live.wire.ports import Entry, MissingError, OvertakenError, Ports, Transport
from fedtwin.live.wire.protocol import Subjects
from fedtwin.live.wire.real import REAL
from fedtwin.live.wire.tape import Tape
from fedtwin.live.wire.troubles import TROUBLES

LEASE_S, RENEW_S, LOOK_S = 3.7, 0.25, 0.2
SLOW_ANSWER_S, RETURN_S = 1.0, 1.0
PLACE_NAME = ".place"


class Claim(BaseModel):
    """Who serves. ``holder`` is a process, ``place`` its run folder: who has locked that knows that the holder is dead."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    holder: str
    place: str
    who: str
    returned: bool = False


def place_of(folder: Path, new_name: str) -> str:
    """A name that no other folder has, not even a copy of this one; a new one where the folder has none yet."""
    path, number = folder / PLACE_NAME, str(folder.stat().st_ino)
    with suppress(OSError, ValueError):
        name, of = path.read_text(encoding="utf-8").split()
        if of == number:
            return name
    with suppress(OSError):  # on a full disk: a crash then holds the name for a while against its own folder too
        write_whole(path, f"{new_name} {number}\n")
    return new_name


class Lease:
    """``take`` it, ``keep_for_ever``, give it back by ``end``. ``stands``: nobody else can have it at this moment."""

    def __init__(
        self, transport: Transport, run: str, folder: Path, replicas: int, ports: Ports = REAL, renew_s: float = RENEW_S
    ) -> None:
        subjects = Subjects(run)
        self._transport, self._run, self._subject, self._clock = transport, run, subjects.lease, ports.clock
        self._tape = Tape(transport, subjects.lease_tape, subjects.lease, newest_only=True, replicas=replicas)
        who = f"process {os.getpid()} on {socket.gethostname()}, run folder {str(folder.resolve())!r}"
        self._claim = Claim(holder=ports.chance.token(), place=place_of(folder, ports.chance.token()), who=who)
        self._number = 0
        self._until, self._renew_s = 0.0, renew_s
        self._unfenced = False
        self._another = False  # was seen to have it: who may write it anew, where the broker has lost its store
        self._renewed = asyncio.Event()

    @property
    def stands(self) -> bool:
        return self._unfenced or self._clock.monotonic_s() < self._until

    async def held(self) -> None:
        """At once while it stands; else when it was written anew."""
        while not self.stands:
            self._renewed.clear()
            await self._renewed.wait()

    async def take(self, *, standby: bool, meanwhile: Callable[[], Awaitable[object]] | None = None) -> None:
        """Or ``ServedElsewhereError``; with ``standby`` it is waited for. One of ``TROUBLES`` where the broker fails."""
        await self._tape.make()
        seen, since, told = await self._found(), self._clock.monotonic_s(), False
        while True:
            asked = self._clock.monotonic_s()
            entry = await self._found()
            now = self._clock.monotonic_s()
            other = _claim_of(entry)
            free = not self._another if other is None else other.returned or other.place == self._claim.place
            self._another = self._another or not free
            if other is not None and not free and entry.number != seen.number and not standby:
                raise ServedElsewhereError(
                    f"run {self._run!r} is served by another edge server, {other.who}: stop that one, give this run another "
                    "name with --run NAME, or let this one wait with --standby."
                )
            if entry.number != seen.number or now - asked > SLOW_ANSWER_S:
                seen, since = entry, now
            if (free or now - since > LEASE_S) and await self._write(entry.number):
                return
            if meanwhile is not None:
                await meanwhile()
            if standby and not told and other is not None:
                told = True
                say(logging.INFO, "standing by: another edge server serves the run", run=self._run, who=other.who)
            await asyncio.sleep(LOOK_S)

    async def keep_for_ever(self) -> None:
        """Written anew, whatever the broker goes through; ``TakenOverError`` when another has it."""
        while not self._unfenced:
            await asyncio.sleep(self._renew_s)
            with suppress(*TROUBLES):
                if not await self._write(self._number):
                    await self._look_who_has_it()

    async def end(self) -> None:
        """Given back, so that nobody has to wait for its end."""
        with suppress(*TROUBLES):
            data = self._claim.model_copy(update={"returned": True}).model_dump_json().encode()
            await asyncio.wait_for(self._tape.append(data, after=self._number), RETURN_S)

    async def _found(self) -> Entry:
        try:
            return await self._tape.last()
        except MissingError:
            await self._tape.make()
            return Entry(0, b"", {})

    async def _write(self, after: int) -> bool:
        """False where somebody has written since."""
        begun = self._clock.monotonic_s()
        try:
            self._number = await self._tape.append(self._claim.model_dump_json().encode(), after=after)
        except OvertakenError:
            return False
        except MissingError:
            await self._tape.make()
            return False
        except TimeoutError:
            if not self._may_not():
                raise
        self._until = begun + LEASE_S
        self._renewed.set()
        return True

    def _may_not(self) -> bool:
        """The rights of a fleet that was provisioned before there was a lease."""
        if self._transport.refused(self._subject) and not self._unfenced:
            self._unfenced = True
            again = f"fedtwin provision DIR --run {self._run}"
            say(logging.ERROR, f"a second edge server would not be kept away: users.conf is old, {again} writes it anew")
        return self._unfenced

    async def _look_who_has_it(self) -> None:
        """An answer of the broker may have been lost, and with its store the lease: then it is ours still."""
        entry = await self._found()
        other = _claim_of(entry)
        if other is not None and other.holder != self._claim.holder:
            raise TakenOverError(
                f"run {self._run!r} was taken over by another edge server, {other.who}: this one was away for over "
                f"{LEASE_S:g} s, and has stopped."
            )
        self._number = entry.number
        say(logging.DEBUG, "the lease is written anew", number=self._number)


def _claim_of(entry: Entry) -> Claim | None:
    try:
        return Claim.model_validate_json(entry.data)
    except ValidationError:
        return None
