"""The ledger at the broker: a tape with one line per number, the files it speaks of in a box, and in the run folder a copy.

The tape is the truth. An event that was appended is believed by the run at once, and waits here for the tape; nothing may go
outside before it is there (``settled``). Only who knows the last number can append: a second edge server is found out by its
first event, and then nothing of what waits here has happened.
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedtwin.errors import FedtwinError, TakenOverError
from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import Ledger, sealed
from fedtwin.live.run.model import MODELS
from fedtwin.live.run.snapshots import snapshots_in
from fedtwin.live.wire.box import Box
from fedtwin.live.wire.ports import MissingError, OvertakenError, TransportError
from fedtwin.live.wire.tape import Tape
from fedtwin.live.wire.troubles import TROUBLES, words_of
from fedtwin.records.files import CODE_NAME, CONFIG_NAME, FLEET_NAME

FILES_HEADER = "Fedtwin-Files"
MOST_AT_ONCE, AGAIN_S = 64, 0.2
WRITES_FILES = (events.Began, events.Resumed, events.Applied, events.Closed, events.Changed)


class NotWrittenError(TransportError):
    """It is sent again."""


@dataclass
class _Waiting:
    """A line on its way: the files that must be there before it, all that may be needed after it, if they are new, and what
    is done when the folder has it.
    """

    line: bytes
    digits: str
    new: dict[str, bytes]
    names: set[str] | None
    then: Callable[[], None] = lambda: None


class StreamLedger:
    """``write_for_ever`` is a task of whoever serves; its end is the end of the run here.

    The tape has ``number`` lines; ``digits`` are those of the last one that was appended.
    """

    def __init__(self, folder: Path, tape: Tape, box: Box, *, number: int, there: dict[str, str]) -> None:
        self._folder, self._tape, self._box, self._number = folder, tape, box, number
        self.digits = ""
        self._copy: Ledger | None = None
        self._behind = 0
        self._there = there
        self._seen = set(there)
        self._waiting: deque[_Waiting] = deque()
        self._news, self._progress = asyncio.Event(), asyncio.Condition()
        self._appended = self._written = 0
        self._trouble: FedtwinError | None = None

    def send(self, event: Event, line: bytes, digits: str) -> None:
        """What the folder has and the tape has not."""
        names = files_in(self._folder) if isinstance(event, WRITES_FILES) else None
        new = {name: path_of(self._folder, name).read_bytes() for name in (names or set()) - self._seen}
        self._seen |= new.keys()
        self._waiting.append(_Waiting(line, digits, new, names))
        self.digits = digits
        self._appended += 1
        self._news.set()

    def copy_to(self, copy: Ledger) -> None:
        """From now on events come to the folder's ledger when the tape has them."""
        self._behind, self._copy, self.digits = len(self._waiting), copy, copy.digits

    def append(self, event: Event) -> None:
        if self._trouble is not None:
            raise self._trouble
        self.send(event, *sealed(event, self.digits))

    def then(self, work: Callable[[], None]) -> None:
        """Done when the folder's ledger has what was appended last, which has only just been."""
        self._waiting[-1].then = work

    async def settled(self) -> None:
        """All that was appended so far is on the tape."""
        wanted = self._appended
        async with self._progress:
            await self._progress.wait_for(lambda: self._written >= wanted or self._trouble is not None)
        if self._trouble is not None:
            raise self._trouble

    async def write_for_ever(self) -> None:
        """However long the broker is away; ``TakenOverError`` when somebody else has written."""
        told = ""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                try:
                    await self._write([self._waiting[k] for k in range(min(len(self._waiting), MOST_AT_ONCE))])
                    told = ""
                except TROUBLES as error:
                    if words_of(error) != told:
                        told = words_of(error)
                        say(logging.WARNING, "the ledger at the broker cannot be written yet", reason=told)
                    await self._require_it_is_there()
                    await asyncio.sleep(AGAIN_S)
                except FedtwinError as error:
                    self._trouble = error
                    raise
                finally:
                    async with self._progress:
                        self._progress.notify_all()

    async def _write(self, group: list[_Waiting]) -> None:
        for one in group:
            for name, data in one.new.items():
                if name not in self._there:
                    stored = object_name(name, data)
                    await self._box.put(stored, data)
                    self._there[name] = stored
        lines, before = [one.line for one in group], [None, *(one.digits for one in group[:-1])]
        heads = [{FILES_HEADER: " ".join(self._there[name] for name in one.new)} if one.new else None for one in group]
        sent = [
            self._tape.append(one.line, after=self._number + k, name=one.digits, follows=before[k], headers=heads[k])
            for k, one in enumerate(group)
        ]
        for line, answer in zip(lines, await asyncio.gather(*sent, return_exceptions=True), strict=True):
            if isinstance(answer, OvertakenError):
                await self._require_ours(line)
            elif isinstance(answer, BaseException):
                raise answer
            self._done()
        if lists := [one.names for one in group if one.names is not None]:
            await self._forget(lists[-1])

    async def _require_it_is_there(self) -> None:
        """A store that was lost is filled anew when the run is resumed."""
        try:
            await self._tape.last()
            await self._box.names()
        except MissingError:
            self._trouble = FedtwinError(f"The ledger {self._tape.name!r} is gone from the broker: go on with --resume.")
            raise self._trouble from None
        except TROUBLES:
            pass

    def _done(self) -> None:
        one = self._waiting.popleft()
        self._number += 1
        self._written += 1
        if self._copy is not None:
            if self._behind:
                self._behind -= 1
            else:
                self._copy.append_line(one.line, one.digits)
                one.then()

    async def _require_ours(self, line: bytes) -> None:
        """An answer may have been lost, and we have written it ourselves; or a line before it, and nobody has."""
        found = await self._tape.read(self._number, 1)
        if not found and (there := (await self._tape.last()).number) < self._number:
            raise FedtwinError(
                f"The ledger {self._tape.name!r} at the broker has {there} lines, and {self._number} had been written: it has "
                "lost the others, or an older store was put back. The run folder has them: go on with --resume."
            )
        if not found:
            raise NotWrittenError("the line before was not written")
        if found[0].data != line:
            raise TakenOverError(
                f"The ledger {self._tape.name!r} was written by another edge server meanwhile: it has taken the run over, and "
                "this one has stopped."
            )

    async def _forget(self, names: set[str]) -> None:
        """What the folder had no more when the last of these events was appended."""
        for name in [name for name in self._there if name not in names]:
            with suppress(*TROUBLES):
                await self._box.remove(self._there[name])
                del self._there[name]
                self._seen.discard(name)


def object_name(name: str, data: bytes) -> str:
    """Two edge servers that write different files of one name do not write over each other's."""
    return f"{name}.{hashlib.sha256(data).hexdigest()[:16]}"


def files_in(folder: Path) -> set[str]:
    """What goes into the box."""
    settings = {name for name in (CONFIG_NAME, FLEET_NAME) if (folder / name).exists()}
    code = {path.relative_to(folder).as_posix() for path in (folder / CODE_NAME).rglob("*") if path.is_file()}
    snapshots = {path.name for path in snapshots_in(folder)}
    return settings | code | snapshots | {path.name for path in (folder / MODELS).glob("*.safetensors")}


def path_of(folder: Path, name: str) -> Path:
    return folder / MODELS / name if name.endswith(".safetensors") and "/" not in name else folder / name
