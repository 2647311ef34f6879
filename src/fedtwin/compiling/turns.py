"""One process compiles, the others wait and read what it has left."""

import os
import time
from pathlib import Path

LONGEST_WAIT_S = 60.0
"""Then a process compiles for itself: the one before it may have been paused."""
LOOK_EVERY_S = 0.05


class Turns:
    """The turn of this process to compile into a folder. It has one at a time, and it ends with the process at the latest."""

    def __init__(self) -> None:
        self._file: int | None = None

    def wait(self, folder: Path, longest_s: float = LONGEST_WAIT_S) -> bool:
        """Takes the turn as soon as no other process has it. Whether one had it: then the code may be there by now."""
        self.end()
        try:
            import fcntl

            file = os.open(folder / "turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except (ImportError, OSError):
            return False
        give_up, others = time.monotonic() + longest_s, False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                others = True
            else:
                self._file = file
                return others
            if time.monotonic() > give_up:
                os.close(file)
                return others
            time.sleep(LOOK_EVERY_S)

    def end(self) -> None:
        """The next process may go on, also where this one has been forked meanwhile."""
        if self._file is not None:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = None
