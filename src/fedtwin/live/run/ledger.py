"""The ledger: one event per line, appended before it takes effect outside. What is in it has happened, what is not has not."""

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.live.run.events import EVENT, Event
from fedtwin.live.wire.ports import Disk
from fedtwin.live.wire.real import DISK

LEDGER_NAME = "ledger.jsonl"


class Ledger:
    """An append goes to the system at once, so it survives the end of the process; with ``fsync`` also a loss of power."""

    def __init__(self, path: Path, *, fsync: bool, disk: Disk = DISK) -> None:
        self._path, self._fsync = path, fsync
        self._file = disk.append_to(path)
        self._torn = False

    def append(self, event: Event) -> None:
        """Or ``FedtwinError``: the run ends then, because nothing may follow a line that is not whole."""
        line = event.model_dump_json(exclude_none=True).encode() + b"\n"
        try:
            if self._torn:
                raise OSError(0, "an earlier line could not be finished")
            self._torn = True
            written = self._file.write(line)
            while written < len(line):
                written += self._file.write(line[written:])
            if self._fsync:
                self._file.sync()
            self._torn = False
        except OSError as error:
            raise FedtwinError(f"The ledger {str(self._path)!r} cannot be written: {error.strerror}.") from None

    def close(self) -> None:
        self._file.close()


class LedgerReader:
    """Reads on from where it stopped, while the ledger may still be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = self.line = 0

    def read(self) -> Iterator[Event]:
        """Every event that was written whole. The last line may be torn, or not finished yet; any other is an error."""
        try:
            with plain_file(self._path).open("rb") as file:
                file.seek(self._place)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self._place += len(line)
                    self.line += 1
                    try:
                        yield EVENT.validate_json(line)
                    except ValidationError as error:
                        raise self.damage(error.errors()[0]["msg"]) from None
        except OSError as error:
            raise FedtwinError(f"The ledger {str(self._path)!r} cannot be read: {error.strerror}.") from None

    def damage(self, what: str) -> FedtwinError:
        """The line that was read last cannot be."""
        return FedtwinError(f"{str(self._path)!r} is damaged in line {self.line}: {what}.")


def read_events(path: Path) -> Iterator[Event]:
    """Every event that was written whole. The last line may be torn; any other that cannot be read is an error."""
    return LedgerReader(path).read()


def cut_torn_line(path: Path) -> None:
    """A line the killed writer did not finish never happened: it is cut off."""
    with path.open("rb+") as file:
        file.seek(0, os.SEEK_END)
        end = file.tell()
        position = end
        while position > 0:
            step = min(65536, position)
            file.seek(position - step)
            found = file.read(step).rfind(b"\n")
            if found >= 0:
                position = position - step + found + 1
                break
            position -= step
        if position < end:
            file.truncate(position)
