"""The journal of a batch: one line of JSON per finished run, so that a batch that was killed goes on where it stopped.

Every line carries a checksum. A line that does not match its own says nothing: its run is done again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.job import Line, outcome_of
from fedtwin.files import plain_file
from fedtwin.records.lock import Lock

Write = Callable[[Sequence[Line]], None]


@dataclass
class Journal:
    """What a journal holds: finished runs by key, and how many lines are damaged, or were never of a journal."""

    lines: dict[str, Line] = field(default_factory=dict)
    damaged: int = 0


def read_journal(path: Path | None) -> Journal:
    """The last word on every run."""
    journal = Journal()
    if path is None or not path.exists():
        return journal
    try:
        with plain_file(path).open("rb") as file:
            for text in filter(bytes.strip, file):
                _take(text, journal)
    except OSError as error:
        raise FedtwinError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    return journal


@contextmanager
def open_journal(path: Path | None) -> Iterator[Write]:
    """Gives a function that writes lines; when it returns they are on disk. No half of a line stays where one does not fit."""
    if path is None:
        yield lambda _: None
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise FedtwinError(f"{str(path.parent)!r} cannot be written: {error.strerror}.") from None
    with file, locked(path.with_name(f"{path.name}.lock")):
        if not _ends_with_a_line(path):
            _append(file, path, b"\n")
        yield lambda lines: _append(file, path, b"".join(map(_text_of, lines)))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file while in here."""
    lock = Lock(path)
    try:
        yield
    finally:
        lock.release()


def _take(text: bytes, journal: Journal) -> None:
    try:
        line: Line = json.loads(text.decode())
        checksum = line.pop("checksum")
        outcome_of(line)
        if checksum == _checksum(line):
            journal.lines[line["key"]] = line
        else:
            journal.damaged += 1
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        journal.damaged += 1


def _append(file: FileIO, path: Path, data: bytes) -> None:
    before, written = os.fstat(file.fileno()).st_size, 0
    try:
        while written < len(data):
            written += file.write(data[written:])
        os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            file.truncate(before + data.rfind(b"\n", 0, written) + 1)
        sentence = f"{str(path)!r} cannot be written: {error.strerror}"
        raise FedtwinError(f"{sentence}. Runs finished before are kept there: the same command goes on from them.") from None


def _text_of(line: Line) -> bytes:
    return json.dumps({**line, "checksum": _checksum(line)}).encode() + b"\n"


def _checksum(line: Line) -> str:
    return hashlib.sha256(json.dumps(line).encode()).hexdigest()[:16]


def _ends_with_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"
