"""The disk of a simulated process: real files, which survive it; it can be full, and the process can die at any write."""

import errno
import random
from pathlib import Path

from fedtwin.live.wire.ports import Appending
from fedtwin.live.wire.real import SystemDisk
from tests.live.simulated.loop import Process


class KilledError(BaseException):
    """The process ends here. Nobody can catch it."""


class FaultyAppending:
    def __init__(self, disk: "FaultyDisk", file: Appending) -> None:
        self._disk, self._file = disk, file

    def write(self, data: bytes) -> int:
        if self._disk.dies():
            self._file.write(data[: self._disk.chance.randrange(len(data))])  # torn
            self._disk.die()
        if self._disk.full:
            if self._disk.room and len(data) > 1:
                self._disk.room = False
                return self._file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(data)

    def sync(self) -> None:
        self._disk.check()

    def close(self) -> None:
        self._file.close()


class FaultyDisk(SystemDisk):
    """``full``: nothing can be written; ``room``: but half of the next line."""

    def __init__(self, process: Process, chance: random.Random) -> None:
        self._process, self.chance = process, chance
        self.full = self.room = False
        self.operations = 0
        self.dies_at_operation: int | None = None

    def dies(self) -> bool:
        if self._process.dead:
            raise KilledError
        self.operations += 1
        return self.operations == self.dies_at_operation

    def die(self) -> None:
        self._process.dead = True
        self._process.dies()
        raise KilledError

    def check(self) -> None:
        if self.dies():
            self.die()

    def write_whole(self, path: Path, data: bytes | str, *, fsync: bool = True) -> None:  # noqa: ARG002
        if self.dies():
            half = data[: len(data) // 2]
            draft = path.with_name(f".{path.name}.1.draft")
            draft.write_bytes(half if isinstance(half, bytes) else half.encode())
            self.die()
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_whole(path, data, fsync=False)

    def remove(self, path: Path) -> None:
        self.check()
        super().remove(path)

    def cut(self, path: Path, size: int) -> None:
        self.check()
        super().cut(path, size)

    def append_to(self, path: Path) -> Appending:
        self.check()
        return FaultyAppending(self, super().append_to(path))
