"""The ledger: one event per line, appended before it takes effect outside. What is in it has happened, what is not has not."""

import errno
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.live.run import chain
from fedtwin.live.run.events import EVENT, Event
from fedtwin.live.wire.ports import Disk
from fedtwin.live.wire.real import DISK

LEDGER_NAME = "ledger.jsonl"
SEGMENT_LINES = 20_000
CHANGED = "it is not as it was written"
BROKEN = f"{CHANGED}, or lines before it are missing, doubled or moved"


class DamageError(FedtwinError):
    """What is on disk is not what was written there."""


class Ledger:
    """An append goes to the system at once, so it survives the end of the process; with ``fsync`` also a loss of power.

    ``after`` are the digits of the last line that is there (``LedgerReader.digits``).
    """

    def __init__(self, path: Path, *, fsync: bool, after: str = "", disk: Disk = DISK) -> None:
        self._path, self._fsync, self.digits, self._disk = path, fsync, after, disk
        try:
            self._file = disk.append_to(path)
        except OSError as error:
            raise _not_written(path, error) from None
        self._torn = False

    def append(self, event: Event) -> None:
        """Or ``FedtwinError``: the run ends then, because nothing may follow a line that is not whole."""
        self.append_line(*sealed(event, self.digits))

    def append_line(self, line: bytes, digits: str) -> None:
        """One that was ``sealed`` before, as it is, and its digits."""
        try:
            if self._torn:
                raise OSError(0, "an earlier line could not be finished")
            self._torn = True
            written = self._file.write(line)
            while written < len(line):
                written += self._file.write(line[written:])
            if self._fsync:
                self._file.sync()
            self._torn, self.digits = False, digits
        except OSError as error:
            raise _not_written(self._path, error) from None

    def begin_segment(self, path: Path) -> None:
        """What is appended from now on goes there; with ``fsync`` the new file itself survives a loss of power.

        Where it cannot be made, an ``OSError``, all goes on in the segment before.
        """
        try:
            self._disk.write_whole(path, b"", fsync=self._fsync)
            file = self._disk.append_to(path)
        except OSError:
            with suppress(OSError):
                self._disk.remove(path)
            raise
        self.close()
        self._path, self._file = path, file

    def close(self) -> None:
        self._file.close()


def sealed(event: Event, before: str) -> tuple[bytes, str]:
    """An event as a line after one with the digits ``before``, and its own digits."""
    return chain.sealed(event.model_dump_json(exclude_none=True).encode(), before)


def segment_path(path: Path, first: int) -> Path:
    """A ledger is in segments, each named by its first line's number: ``ledger.jsonl``, ``ledger-000000020001.jsonl``, …"""
    return path if first == 1 else path.with_name(f"{path.stem}-{first:012d}{path.suffix}")


def first_lines(path: Path) -> list[int]:
    """Of all segments that are there, in order."""
    names = sorted(path.parent.glob(f"{path.stem}-{'[0-9]' * 12}{path.suffix}"))
    later = [int(name.stem.removeprefix(f"{path.stem}-")) for name in names]
    return [1, *later] if path.exists() else later


class Spot(NamedTuple):
    """Where a line begins."""

    segment: Path
    place: int


def place_after(path: Path, line: int, digits: str) -> Spot | None:
    """Of the line after that one; None where the ledger has not so many lines, or that line has other digits.

    Where a segment begins there, it is enough that its first line follows from these digits, or that the last line before it
    has them, or that all segments before were moved away: what is damaged before that changes nothing of what comes after.
    """
    following, before = Spot(segment_path(path, line + 1), 0), [first for first in first_lines(path) if first <= line]
    if following.segment.exists() and (not before or _follows(following.segment, digits)):
        return following
    if not before:
        return None
    segment = segment_path(path, before[-1])
    lines = _whole_lines(segment)
    if following.segment.exists():
        return following if lines and chain.unsealed(lines[-1])[1] == digits else None
    if before[-1] - 1 + len(lines) < line or chain.unsealed(lines[line - before[-1]])[1] != digits:
        return None
    return Spot(segment, sum(map(len, lines[: line - before[-1] + 1])))


def _follows(segment: Path, digits: str) -> bool:
    """Whether a segment begins with a line that follows one with these digits."""
    lines = _whole_lines(segment)
    event, own = chain.unsealed(lines[0]) if lines else (b"", None)
    return own is not None and chain.follows(event, own, digits)


def _whole_lines(segment: Path) -> list[bytes]:
    """None of what cannot be read."""
    try:
        return plain_file(segment).read_bytes().splitlines(keepends=True)
    except OSError:
        return []


class LedgerReader:
    """Reads on from where it stopped, through all segments, while the last may still be written; or from ``place``, after
    ``line`` lines, the last of which has these ``digits``.

    ``digits`` are None where lines are not chained: in a ledger from before they were.
    """

    def __init__(self, path: Path, *, line: int = 0, digits: str | None = "", place: Spot | None = None) -> None:
        self._path = path
        self.segment, self.place = place or Spot(segment_path(path, line + 1), 0)
        self.line, self.digits = line, digits

    def read(self) -> Iterator[Event]:
        """Every event that was written whole. The last line may be torn, or not finished yet; any other is an error."""
        try:
            yield from self._to_the_end()
        except FileNotFoundError:
            self._require_no_gap()
            raise self._unreadable("No such file or directory") from None
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise DamageError(str(self._unreadable(error.strerror))) from None
            raise self._unreadable(error.strerror) from None

    def _to_the_end(self) -> Iterator[Event]:
        """A segment may grow, and the next one begin, after its end was seen: a gap is one that is there at a second look."""
        looked_again = False
        while True:
            before = self.line
            if self.line == 0 or self.segment.exists():
                yield from self._rest()
            following = segment_path(self._path, self.line + 1)
            if following != self.segment and following.exists():
                self.segment, self.place, looked_again = following, 0, False
            elif not self._later():
                return
            elif looked_again and self.line == before:
                self._require_no_gap()
            else:
                looked_again = True

    def _rest(self) -> Iterator[Event]:
        with plain_file(self.segment).open("rb") as file:
            file.seek(self.place)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                event = self._read(line)
                self.place += len(line)
                yield event

    def _later(self) -> list[int]:
        """Segments that do not follow the lines read so far."""
        return [first for first in first_lines(self._path) if first > self.line + 1]

    def _require_no_gap(self) -> None:
        if later := self._later():
            raise DamageError(
                f"Lines {self.line + 1} to {min(later) - 1} of {str(self._path)!r} are not there: until their segments are put "
                f"back, neither the twin nor the tables of this run can be drawn."
            )

    def _unreadable(self, why: str | None) -> FedtwinError:
        return FedtwinError(f"The ledger {str(self.segment)!r} cannot be read: {why}.")

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
        return DamageError(f"{str(self.segment)!r} is damaged in line {self.line}: {what}.")


def lines_after(path: Path, number: int) -> Iterator[bytes]:
    """All lines from after so many, as they are, through all segments; ``DamageError`` where some are not there."""
    for first, following in pairwise([*first_lines(path), math.inf]):
        if following <= number + 1:
            continue
        if first > number + 1:
            raise DamageError(f"Lines {number + 1} to {first - 1} of {str(path)!r} are not there: put their segments back.")
        lines = segment_path(path, int(first)).read_bytes().splitlines(keepends=True)
        yield from lines[number - int(first) + 1 :]
        number = max(number, int(first) - 1 + len(lines))


def read_events(path: Path) -> Iterator[Event]:
    """Every event that was written whole. The last line may be torn; any other that cannot be read is an error."""
    return LedgerReader(path).read()


def cut_torn_line(ledger: Path) -> None:
    """A line the killed writer did not finish never happened: it is cut off the last segment, if that is a file."""
    path = segment_path(ledger, first_lines(ledger)[-1])
    if not path.is_file():
        return
    try:
        whole = _whole_bytes(path)
        if whole < path.stat().st_size:
            os.truncate(path, whole)
    except OSError as error:
        raise _not_written(path, error) from None


def _whole_bytes(path: Path) -> int:
    """Where its last whole line ends."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position > 0:
            step = min(65536, position)
            position -= step
            file.seek(position)
            found = file.read(step).rfind(b"\n")
            if found >= 0:
                return position + found + 1
    return 0


def _not_written(path: Path, error: OSError) -> FedtwinError:
    return FedtwinError(f"The ledger {str(path)!r} cannot be written: {error.strerror}.")
