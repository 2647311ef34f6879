"""One writer per folder: a lock that the system releases when its holder ends, however it ends."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from fedtwin.errors import FedtwinError, LockedError

TRIES, BETWEEN_TRIES_S = 3, 0.01


def is_held(path: Path) -> bool:
    """Whether somebody writes in the folder now: of who was killed the file stays, and not the lock."""
    if os.name != "posix":
        return path.exists()
    import fcntl

    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


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

        tries = 0
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                tries += 1
                if tries < TRIES:  # somebody may only have looked
                    time.sleep(BETWEEN_TRIES_S)
                    continue
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
