"""One writer per folder: a lock that the system releases when its holder ends, however it ends."""

import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from fedtwin.errors import FedtwinError, LockedError


class Lock:
    """Held from construction to ``release``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._opened()
        if os.name == "posix":
            self._take()

    def _opened(self) -> IO[str]:
        try:
            return self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise FedtwinError(f"{str(self._path.parent)!r} cannot be written: {error.strerror}.") from None

    def _take(self) -> None:
        """A file that its last holder removed meanwhile is no lock any more: another may hold the one in its place."""
        import fcntl

        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.close()
                folder = str(self._path.parent)
                raise LockedError(f"{folder!r} is being written by another fedtwin: wait until it ends.") from None
            with suppress(FileNotFoundError):
                if os.path.samestat(self._path.stat(), os.fstat(self._file.fileno())):
                    return
            self._file.close()
            self._file = self._opened()

    def release(self) -> None:
        """Releasing it again does nothing."""
        if not self._file.closed:
            self._path.unlink(missing_ok=True)
            self._file.close()
