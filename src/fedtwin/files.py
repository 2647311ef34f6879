"""Files that are there whole or not at all, and what is no file."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DRAFTS = ".*.draft"

KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def plain_file(path: Path) -> Path:
    """The path again, of what can be read to its end; anything else is an ``OSError``: to open a pipe is to wait."""
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"it is {KINDS.get(kind, 'a device')}, not a file")
    return path


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """The order of names as people have it: device-2 before device-10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A draft beside the file, for what a library writes: it takes the file's place if the block ends well, or is gone."""
    draft = path.with_name(f".{path.name}")
    try:
        yield draft
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    draft.replace(path)


def write_whole(path: Path, data: bytes | str, mode: int = 0o644, *, fsync: bool = True) -> None:
    """Writes next to the file, then renames: a reader, or a kill in between, never sees half of it.

    With ``fsync`` it survives a loss of power too.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        left = memoryview(data.encode() if isinstance(data, str) else data)
        while left:
            left = left[os.write(descriptor, left) :]
        if fsync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    draft.replace(path)
    if fsync:
        _fsync_folder(path.parent)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
