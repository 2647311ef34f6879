"""A run folder that follows a ledger at the broker, line by line, until it can be opened as a run of its own."""

import logging
from contextlib import suppress
from pathlib import Path

from fedtwin.errors import FedtwinError, ServedElsewhereError, TakenOverError
from fedtwin.live.logs import say
from fedtwin.live.run import chain
from fedtwin.live.run.events import EVENT, Applied, Closed, Stopped
from fedtwin.live.run.ledger import (
    LEDGER_NAME,
    SEGMENT_LINES,
    DamageError,
    Ledger,
    cut_torn_line,
    first_lines,
    lines_after,
    segment_path,
)
from fedtwin.live.run.model import MODELS
from fedtwin.live.run.past import has_ledger
from fedtwin.live.run.snapshots import lines_of, snapshots_in
from fedtwin.live.run.stream_ledger import FILES_HEADER, StreamLedger, object_name, path_of
from fedtwin.live.wire.box import Box
from fedtwin.live.wire.ports import Disk, MissingError, ObjectError
from fedtwin.live.wire.real import DISK
from fedtwin.live.wire.tape import Tape

MOST_AT_ONCE = 256


class Follower:
    """``lines``: how many the folder has, all of them the tape's; ``finished``: the last one says that the run is over."""

    def __init__(self, folder: Path, tape: Tape, box: Box, disk: Disk = DISK) -> None:
        self._folder, self._path, self._tape, self._box, self._disk = folder, folder / LEDGER_NAME, tape, box, disk
        (folder / MODELS).mkdir(parents=True, exist_ok=True)
        self._compared, self._digits, self._ahead = False, "", False
        self.lines, self.finished = 0, False

    async def catch_up(self) -> None:
        """The folder has all that the tape had when this began. What only the folder has did not happen: it is cut off.

        Nothing is done where the tape is empty, and the folder is not: the broker has lost it, the folder has all there is.
        """
        self._compared = self._compared or await self._cut_to_what_is_common()
        last = await self._last() if self._compared else 0
        while self.lines < last:
            most = min(MOST_AT_ONCE, last - self.lines, SEGMENT_LINES - self.lines % SEGMENT_LINES)
            entries = await self._tape.read(self.lines, most)
            if not entries:
                if await self._last() >= last:  # one that was made anew meanwhile has fewer
                    raise _emptied(self._tape)
                return
            ledger = Ledger(self._segment(), fsync=False, after=self._digits, disk=self._disk)
            try:
                for entry in entries:
                    self._take(ledger, entry.number, entry.data)
            finally:
                ledger.close()

    async def _last(self) -> int:
        """How many lines the tape has; those that it counts and does not have will never come."""
        last = await self._tape.last()
        if last.number and not last.data:
            raise _emptied(self._tape)
        return last.number

    def _segment(self) -> Path:
        """The last one, or a new one where that is full: who has a snapshot from the box reads on from there."""
        full = self.lines % SEGMENT_LINES == 0
        return segment_path(self._path, self.lines + 1 if full else first_lines(self._path)[-1])

    def _take(self, ledger: Ledger, number: int, line: bytes) -> None:
        """As it is: the same bytes, if they follow."""
        event, digits = chain.unsealed(line)
        if digits is None or not chain.follows(event, digits, self._digits):
            raise DamageError(f"The ledger {self._tape.name!r} at the broker is damaged: line {number} does not follow.")
        ledger.append_line(line, digits)
        self.lines, self._digits, self.finished = number, digits, _is_the_end(event)

    async def fetch_files(self) -> None:
        """The folder has the files of the box, no other models or snapshots; what it has, where the broker lost tape or box."""
        if not self.lines or self._ahead:
            return
        try:
            there = await files_there(self._tape, self._box)
        except MissingError:
            return
        for path in (*(self._folder / MODELS).glob("*.safetensors"), *snapshots_in(self._folder)):
            if path.name not in there:
                self._disk.remove(path)
        for name, stored in there.items():
            path = path_of(self._folder, name)
            if path.exists() and object_name(name, path.read_bytes()) == stored:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                data = await self._box.get(stored)
            except ObjectError as error:
                raise FedtwinError(f"The file {name!r} of the run cannot be had from the broker: {error}.") from None
            try:
                self._disk.write_whole(path, data)
            except OSError as error:
                raise FedtwinError(f"{str(path)!r} cannot be written: {error.strerror}.") from None

    async def _cut_to_what_is_common(self) -> bool:
        """An edge server that was taken over, or refused, may have lines of its own at the end. False: the tape is empty."""
        last, firsts = await self._last(), first_lines(self._path)
        if firsts:
            cut_torn_line(self._path)
        if not has_ledger(self._folder) or not last:
            return not has_ledger(self._folder)
        if lost := await self._lost_by_the_broker(last):
            what = "the broker has lost lines of the ledger that this folder has: they will be written there again"
            say(logging.WARNING, what, lines=len(lost), first=last + 1)
            event, digits = chain.unsealed(lost[-1])
            self.lines, self._digits, self._ahead = last + len(lost), digits or "", True
            self.finished = _is_the_end(event)
            return True
        for first in reversed(firsts):
            lines = segment_path(self._path, first).read_bytes().splitlines(keepends=True)
            count = max(min(len(lines), last - first + 1), 0)
            while count and await self._line(first + count - 1) != lines[count - 1]:
                count -= 1
            if count:
                self._cut(first, lines[:count])
                return True
        raise FedtwinError(f"The ledger {self._tape.name!r} at the broker is of another run than {str(self._folder)!r}.")

    async def _lost_by_the_broker(self, last: int) -> list[bytes]:
        """What follows in the folder on the tape's last line, if an upload is in it: it was acknowledged when the tape had it.

        Without one they may be lines of an edge server that was refused, and did not happen.
        """
        here, *more = [*lines_after(self._path, last - 1)] or [b""]
        if not more or here != await self._line(last):
            return []
        events = (EVENT.validate_json(chain.unsealed(line)[0]) for line in more)
        return more if any(isinstance(event, Applied | Closed) for event in events) else []

    async def _line(self, number: int) -> bytes | None:
        found = await self._tape.read(number - 1, 1)
        return found[0].data if found else None

    def _cut(self, first: int, lines: list[bytes]) -> None:
        """The folder ends with these lines of the segment that begins with line ``first``."""
        event, digits = chain.unsealed(lines[-1])
        self.lines, self._digits = first - 1 + len(lines), digits or ""
        self.finished = _is_the_end(event)
        for path in snapshots_in(self._folder):
            if lines_of(path) > self.lines:
                self._disk.remove(path)
        for later in reversed([one for one in first_lines(self._path) if one > first]):
            self._disk.remove(segment_path(self._path, later))
        self._disk.cut(segment_path(self._path, first), sum(map(len, lines)))


async def attached(folder: Path, tape: Tape, box: Box, *, new: bool) -> StreamLedger:
    """What the folder's ledger has and the tape has not is on its way there; ``FedtwinError`` where they are not of one run."""
    if new:
        await _make_room(tape, box)
    await tape.make()
    await box.make()
    last = await tape.last()
    lines = [*lines_after(folder / LEDGER_NAME, max(last.number - 1, 0))]
    if last.number and not last.data:
        raise _emptied(tape)
    if last.number and (not lines or lines.pop(0) != last.data):
        raise TakenOverError(
            f"The ledger {tape.name!r} at the broker is ahead of {str(folder)!r}: another edge server writes it."
        )
    ledger = StreamLedger(folder, tape, box, number=last.number, there=await files_there(tape, box))
    for line in lines:
        event, digits = chain.unsealed(line)
        ledger.send(EVENT.validate_json(event), line, digits or "")
    return ledger


async def files_there(tape: Tape, box: Box) -> dict[str, str]:
    """The files in the box by their own names. Where one is there twice, the tape says which of them happened."""
    found: dict[str, list[str]] = {}
    for stored in await box.names():
        found.setdefault(stored.rpartition(".")[0], []).append(stored)
    double = {name for name, stored in found.items() if len(stored) > 1}
    number = (await tape.last()).number if double else 0
    while double and number:
        for stored in [
            name for entry in await tape.read(number - 1, 1) for name in entry.headers.get(FILES_HEADER, "").split()
        ]:
            name = stored.rpartition(".")[0]
            if name in double:
                double.remove(name)
                found[name] = [stored]
        number -= 1
    return {name: stored[0] for name, stored in found.items() if name not in double}


async def _make_room(tape: Tape, box: Box) -> None:
    """A new run of a name takes the place of one that is finished; one that is not is not thrown away."""
    try:
        last = await tape.last()
    except MissingError:
        return
    if not last.number:
        return
    if not _is_the_end(chain.unsealed(last.data)[0]):
        raise ServedElsewhereError(
            f"The broker has the ledger {tape.name!r} of a run that is not finished: go on with it by --state DIR --standby, "
            "or give this run another name with --run NAME."
        )
    with suppress(MissingError):
        for name in await box.names():
            await box.remove(name)
    await tape.remove()


def _emptied(tape: Tape) -> DamageError:
    return DamageError(
        f"The ledger {tape.name!r} at the broker has been emptied: its lines are only in the folder of the edge server that "
        f"wrote them. Remove what is left (nats stream rm {tape.name}), and go on there by fedtwin edge --resume."
    )


def _is_the_end(event: bytes) -> bool:
    stopped = EVENT.validate_json(event)
    return isinstance(stopped, Stopped) and stopped.finished
