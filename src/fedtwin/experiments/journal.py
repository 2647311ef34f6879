"""The journal of a batch: one line of JSON per finished run, so that a batch that was killed goes on where it stopped."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.experiments.job import Line
from fedtwin.records.lock import Lock

Write = Callable[[Sequence[Line]], None]


def read_journal(journal: Path | None) -> dict[str, Line]:
    """Finished runs by key; a line cut short by a kill is no finished run."""
    if journal is None or not journal.is_file():
        return {}
    lines = {}
    with journal.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            if isinstance(line, dict) and "key" in line:
                lines[line["key"]] = line
    return lines


@contextmanager
def open_journal(journal: Path | None) -> Iterator[Write]:
    """Gives a function that writes lines; when it returns they are on disk, all by one call to the system."""
    if journal is None:
        yield lambda _: None
        return
    try:
        journal.parent.mkdir(parents=True, exist_ok=True)
        file = journal.open("a", encoding="utf-8")
    except OSError as error:
        raise FedtwinError(f"{str(journal.parent)!r} cannot be written: {error.strerror}.") from None
    with file, locked(journal.with_name(f"{journal.name}.lock")):
        file.write("\n" if journal.stat().st_size else "")

        def write(lines: Sequence[Line]) -> None:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())

        yield write


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file while in here."""
    lock = Lock(path)
    try:
        yield
    finally:
        lock.release()
