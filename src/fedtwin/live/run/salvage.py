"""What is left of a ledger that is damaged, or of which segments were moved away: all lines that follow from the one before."""

from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

from pydantic import ValidationError

from fedtwin.files import plain_file
from fedtwin.live.run import chain
from fedtwin.live.run.events import EVENT, Event
from fedtwin.live.run.ledger import BROKEN, first_lines, segment_path


class Salvage:
    """Reads all segments that are there. Of a line that was changed, or follows one that is missing, only the digits are taken:
    the lines after it are held against them.

    ``moved``: the lines up to this one are in segments that were moved away, or cannot be verified without them.
    ``lost``: how many others cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.moved = self.lost = 0
        self._first = ""
        self._next, self._digits = 1, ""
        self._known = True

    @property
    def damage(self) -> str | None:
        """What is not as it was written, as the beginning of a sentence; None where all is."""
        if not self.lost:
            return None
        return f"{self._first} ({self.lost} line{'s' * (self.lost != 1)} of the ledger cannot be used)"

    def events(self) -> Iterator[Event | None]:
        """In order; None where lines are missing in between."""
        for line in self.lines():
            try:
                yield EVENT.validate_json(line) if line is not None else None
            except ValidationError as error:
                self._lose(1, f"{str(self._path)!r} has a line that says nothing: {error.errors()[0]['msg']}")
                yield None

    def lines(self, until: int | None = None) -> Iterator[bytes | None]:
        """The same as bytes; of all segments, or those that begin with line ``until`` or before."""
        firsts = first_lines(self._path)
        for first in firsts:
            if until is not None and first > until:
                return
            if first > self._next:
                self._miss(first)
                yield None
            self._next = first
            yield from self._of(segment_path(self._path, first), torn=first == firsts[-1])

    def _of(self, segment: Path, *, torn: bool) -> Iterator[bytes | None]:
        """``torn``: the last line may be, or is not finished yet."""
        try:
            with plain_file(segment).open("rb") as file:
                for line in file:
                    if torn and not line.endswith(b"\n"):
                        return
                    event, digits = chain.unsealed(line)
                    if self._known and digits is not None and chain.follows(event, digits, self._digits):
                        yield event
                    else:
                        self._distrust(segment)
                        yield None
                    self._known, self._digits = digits is not None, digits or ""
                    self._next += 1
        except OSError as error:
            self._known = False
            self._lose(1, f"{str(segment)!r} cannot be read: {error.strerror}")
            yield None

    def end(self, line: int) -> None:
        """It should be there to this line."""
        if self._next <= line and self._next > 1:
            self._miss(line + 1)

    def _miss(self, first: int) -> None:
        if self._next == 1:
            self._known, self.moved = False, first
        else:
            self._lose(first - self._next, f"Lines {self._next} to {first - 1} of {str(self._path)!r} are not there")

    def _distrust(self, segment: Path) -> None:
        if self._next != self.moved:
            self._lose(1, f"{str(segment)!r} is damaged in line {self._next}: {BROKEN}")

    def _lose(self, lines: int, why: str) -> None:
        self.lost += lines
        self._first = self._first or why


def damage_before(ledger: Path, line: int, digits: str) -> str | None:
    """What of the lines up to this one, which has these digits, is not as it was written. Segments that were moved away are no
    damage.

    All of it is read: so first a quick look whether it is whole, which it mostly is.
    """
    if _last_digits(ledger, line) == digits:
        return None
    left = Salvage(ledger)
    for _ in left.lines(until=line):
        pass
    left.end(line)
    return left.damage


def _last_digits(ledger: Path, line: int) -> str | None:
    """Of this line, if all before it that are there follow from one another, else None; of one that is not there, nothing."""
    firsts = [first for first in first_lines(ledger) if first <= line]
    digits: str | None = ""
    for first, following in pairwise([*firsts, line + 1]):
        try:
            with plain_file(segment_path(ledger, first)).open("rb") as file:
                lines = islice(file, following - first)
                if first == firsts[0] > 1:  # what it follows from was moved away
                    digits = chain.unsealed(next(lines, b""))[1]
                digits = chain.last_of(lines, digits) if digits is not None else None
                if digits is None or (following <= line and file.read(1)):
                    return None
        except OSError:
            return None
    return digits
