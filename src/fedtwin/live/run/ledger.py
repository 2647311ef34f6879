"""The ledger: one event per line, appended before it takes effect outside. What is in it has happened, what is not has not."""

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.live.run import chain
from fedtwin.live.run.events import EVENT, Event

LEDGER_NAME = "ledger.jsonl"
CHANGED = "it is not as it was written"
BROKEN = f"{CHANGED}, or lines before it are missing, doubled or moved"


class DamageError(FedtwinError):
    """What is on disk is not what was written there."""


class Ledger:
    """An append goes to the system at once, so it survives the end of the process; with ``fsync`` also a loss of power.

    ``after`` are the digits of the last line that is there (``LedgerReader.digits``).
    """

    def __init__(self, path: Path, *, fsync: bool, after: str = "") -> None:
        self._path, self._fsync, self._digits = path, fsync, after
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._torn = False

    def append(self, event: Event) -> None:
        """Or ``FedtwinError``: the run ends then, because nothing may follow a line that is not whole."""
        line, digits = chain.sealed(event.model_dump_json(exclude_none=True).encode(), self._digits)
        try:
            if self._torn:
                raise OSError(0, "an earlier line could not be finished")
            self._torn = True
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
            if self._fsync:
                os.fsync(self._file)
            self._torn, self._digits = False, digits
        except OSError as error:
            raise FedtwinError(f"The ledger {str(self._path)!r} cannot be written: {error.strerror}.") from None

    def close(self) -> None:
        os.close(self._file)


class LedgerReader:
    """Reads on from where it stopped, while the ledger may still be written.

    ``digits`` are those of the last line; None where lines are not chained: in a ledger from before they were.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = self.line = 0
        self.digits: str | None = ""

    def read(self) -> Iterator[Event]:
        """Every event that was written whole. The last line may be torn, or not finished yet; any other is an error."""
        try:
            with plain_file(self._path).open("rb") as file:
                file.seek(self.place)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    event = self._read(line)
                    self.place += len(line)
                    yield event
        except OSError as error:
            raise FedtwinError(f"The ledger {str(self._path)!r} cannot be read: {error.strerror}.") from None

    def _read(self, line: bytes) -> Event:
        self.line += 1
        event, digits = chain.unsealed(line)
        if self.line == 1 and digits is None:
            self.digits = None
        if self.digits is None:
            if digits is not None:
                raise self.damage("it is chained, and the lines before it are not")
        elif digits is None or not chain.follows(event, digits, self.digits):
            raise self.damage(CHANGED if self.line == 1 else BROKEN)
        self.digits = digits
        try:
            return EVENT.validate_json(event)
        except ValidationError as error:
            raise self.damage(error.errors()[0]["msg"]) from None

    def impossible(self, event: Event, error: Exception) -> DamageError:
        """It was read last, and does not fit the state."""
        return self.damage(f"{event.kind} cannot have happened there ({type(error).__name__}: {error})")

    def damage(self, what: str) -> DamageError:
        """The line that was read last cannot be."""
        return DamageError(f"{str(self._path)!r} is damaged in line {self.line}: {what}.")


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
