"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, data: bytes | str, mode: int = 0o644) -> None:
    """Writes next to the file, then renames: a reader, or a kill in between, never sees half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
