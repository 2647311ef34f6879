"""One writer per folder: a lock that the system releases when its holder ends, however it ends."""

import os
from pathlib import Path
from typing import IO

from fedtwin.errors import FedtwinError, LockedError


class Lock:
    """Held from construction to ``release``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file: IO[str] = path.open("a", encoding="utf-8")
        except OSError as error:
            raise FedtwinError(f"{str(path.parent)!r} cannot be written: {error.strerror}.") from None
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.close()
                raise LockedError(f"{str(path.parent)!r} is being written by another fedtwin: wait until it ends.") from None

    def release(self) -> None:
        """Releasing it again does nothing."""
        if not self._file.closed:
            self._path.unlink(missing_ok=True)
            self._file.close()
