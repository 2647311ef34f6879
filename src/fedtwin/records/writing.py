"""A run folder that cannot be written, as a rule because the disk is full: one sentence, and nothing half-written stays."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedtwin.errors import FedtwinError

UNFINISHED = (".*.parquet", ".*.json", ".*.safetensors", "rounds.parquet/.*.parquet")


@contextmanager
def telling_of_failed_writes(folder: Path, *more_kinds: type[Exception]) -> Iterator[None]:
    """Around whatever writes to the folder of a run that can be resumed. ``more_kinds`` are errors of a library's own."""
    kinds: tuple[type[Exception], ...] = (OSError, *more_kinds)
    try:
        yield
    except kinds as error:
        remove_unfinished(folder)
        raise FedtwinError(
            f"{str(folder)!r} cannot be written ({reason_of(error)}): what is there stays readable, "
            f"and fedtwin run --resume {folder} goes on from it once there is room."
        ) from None


def reason_of(error: Exception) -> str:
    """In the words of the system; libraries add their own."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return " ".join(str(error).split()).rstrip(".")


def remove_unfinished(folder: Path) -> None:
    """What was being written when it failed; whole files have other names."""
    with suppress(OSError):
        for pattern in UNFINISHED:
            for path in folder.glob(pattern):
                path.unlink(missing_ok=True)
