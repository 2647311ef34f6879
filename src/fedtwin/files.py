"""Files that are there whole or not at all."""

import os
from pathlib import Path

DRAFTS = ".*.draft"


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
