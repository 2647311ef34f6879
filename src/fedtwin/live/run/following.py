"""A run folder that follows a ledger at the broker, line by line, until it can be opened as a run of its own."""

import json
import os
from pathlib import Path

from fedtwin.errors import FedtwinError, ServedElsewhereError, TakenOverError
from fedtwin.files import write_whole
from fedtwin.live.run.events import EVENT, Event, Stopped
from fedtwin.live.run.ledger import LEDGER_NAME, Ledger, cut_torn_line
from fedtwin.live.run.stream_ledger import FILES_HEADER, MODELS, StreamLedger, object_name, path_of
from fedtwin.live.wire.box import Box
from fedtwin.live.wire.objects import ObjectError
from fedtwin.live.wire.tape import MissingTapeError, Tape

MOST_AT_ONCE = 256


class Follower:
    """``lines``: how many the folder has, all of them the tape's; ``finished``: the last one says that the run is over."""

    def __init__(self, folder: Path, tape: Tape, box: Box) -> None:
        self._folder, self._path, self._tape, self._box = folder, folder / LEDGER_NAME, tape, box
        (folder / MODELS).mkdir(parents=True, exist_ok=True)
        self._compared = False
        self.lines, self.finished = 0, False

    async def catch_up(self) -> None:
        """The folder has all that the tape had when this began. What only the folder has did not happen: it is cut off."""
        if not self._compared:
            self.lines = await self._cut_to_what_is_common()
            self._compared = True
        last = (await self._tape.last()).number
        while entries := await self._tape.read(self.lines, min(MOST_AT_ONCE, last - self.lines)):
            ledger = Ledger(self._path, fsync=False)
            try:
                for entry in entries:
                    event = EVENT.validate_json(entry.data)
                    ledger.append(event)
                    self.lines, self.finished = entry.number, isinstance(event, Stopped) and event.finished
            finally:
                ledger.close()

    async def fetch_files(self) -> None:
        """The folder has the files of the box, and no others."""
        there = await files_there(self._tape, self._box)
        for path in (self._folder / MODELS).glob("*.safetensors"):
            if path.name not in there:
                path.unlink()
        for name, stored in there.items():
            path = path_of(self._folder, name)
            if path.exists() and object_name(name, path.read_bytes()) == stored:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                write_whole(path, await self._box.get(stored))
            except ObjectError as error:
                raise FedtwinError(f"The file {name!r} of the run cannot be had from the broker: {error}.") from None

    async def _cut_to_what_is_common(self) -> int:
        """An edge server that was taken over, or was refused, may have lines of its own at the end."""
        if not self._path.exists():
            return 0
        cut_torn_line(self._path)
        lines = self._path.read_bytes().splitlines(keepends=True)
        last = (await self._tape.last()).number
        count = min(len(lines), last)
        while count and (await self._tape.read(count - 1, 1))[0].data != _canonical(lines[count - 1]):
            count -= 1
        if last and lines and not count:
            raise FedtwinError(f"The ledger {self._tape.name!r} at the broker is of another run than {str(self._folder)!r}.")
        if last:  # else the broker has lost it, and the folder has all there is
            os.truncate(self._path, sum(len(line) for line in lines[:count]))
            return count
        return len(lines)


async def attached(folder: Path, tape: Tape, box: Box, *, new: bool) -> StreamLedger:
    """What the folder's ledger has and the tape has not is on its way there; ``FedtwinError`` where they are not of one run."""
    if new:
        await _make_room(tape, box)
    await tape.make()
    await box.make()
    lines = (folder / LEDGER_NAME).read_bytes().splitlines()
    last = await tape.last()
    if last.number > len(lines) or (last.number and last.data != _canonical(lines[last.number - 1])):
        raise TakenOverError(
            f"The ledger {tape.name!r} at the broker is ahead of {str(folder)!r}: another edge server writes it."
        )
    ledger = StreamLedger(folder, tape, box, number=last.number, there=await files_there(tape, box))
    for line in lines[last.number :]:
        ledger.send(_event(line))
    return ledger


async def files_there(tape: Tape, box: Box) -> dict[str, str]:
    """The files in the box by their own names. Where one is there twice, the tape says which of them happened."""
    found: dict[str, list[str]] = {}
    for stored in await box.names():
        found.setdefault(stored.rpartition(".")[0], []).append(stored)
    double = {name for name, stored in found.items() if len(stored) > 1}
    number = (await tape.last()).number if double else 0
    while double and number:
        for stored in (await tape.read(number - 1, 1))[0].headers.get(FILES_HEADER, "").split():
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
    except MissingTapeError:
        return
    if not last.number:
        return
    event = EVENT.validate_json(last.data)
    if not (isinstance(event, Stopped) and event.finished):
        raise ServedElsewhereError(
            f"The broker has the ledger {tape.name!r} of a run that is not finished: go on with it by --state DIR --standby, "
            "or give this run another name with --run NAME."
        )
    for name in await box.names():
        await box.remove(name)
    await tape.remove()


def _event(line: bytes) -> Event:
    return EVENT.validate_python({key: value for key, value in json.loads(line).items() if key != "chain"})


def _canonical(line: bytes) -> bytes:
    return _event(line).model_dump_json(exclude_none=True).encode()
