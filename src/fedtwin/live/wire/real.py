"""The world as it is, behind the ports: the system's clock, chance, threads and disk, and NATS."""

import asyncio
import errno
import hashlib
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedtwin.files import write_whole
from fedtwin.live.wire.ports import Appending, Ports, Transport


class SystemClock:
    monotonic_s = staticmethod(time.monotonic)
    wall_s = staticmethod(time.time)


class SystemChance:
    uniform = staticmethod(random.uniform)

    def token(self) -> str:
        return secrets.token_hex(16)


class AppendedFile:
    def __init__(self, path: Path) -> None:
        self._path, self._file = path, os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        there = path.stat()
        self._inode, self._size = there.st_ino, there.st_size

    def write(self, data: bytes) -> int:
        """Nothing where it was removed, replaced or cut meanwhile: what is written there would be nowhere."""
        there = self._path.stat()
        if there.st_ino != self._inode or there.st_size < self._size:
            raise OSError(errno.ESTALE, "it was replaced, or lines of it are gone")
        written = os.write(self._file, data)
        self._size += written
        return written

    def sync(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


WORTH_A_THREAD_BYTES = 2**18
_HASHING = ThreadPoolExecutor(1, "digest")


class SystemDisk:
    def write_whole(self, path: Path, data: bytes | str, *, fsync: bool = True) -> None:
        write_whole(path, data, fsync=fsync)

    def write_digested(self, path: Path, data: bytes, *, fsync: bool = True) -> str:
        """Of much data the digest is made in a thread, while this one writes: neither holds the interpreter."""
        digest = _HASHING.submit(hashlib.sha256, data) if len(data) > WORTH_A_THREAD_BYTES else None
        self.write_whole(path, data, fsync=fsync)
        return (hashlib.sha256(data) if digest is None else digest.result()).hexdigest()

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def read_from(self, path: Path, offset: int, most_bytes: int) -> bytes:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(most_bytes)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def names(self, folder: Path) -> list[str]:
        return [path.name for path in folder.iterdir()]

    def append_to(self, path: Path) -> Appending:
        return AppendedFile(path)

    def cut(self, path: Path, size: int) -> None:
        os.truncate(path, size)


async def connect(
    servers: list[str],
    *,
    name: str,
    credentials: Path | None,
    insecure: bool,
    on_reconnect: Callable[[], Awaitable[None]] | None = None,
    expected: Callable[[], bool] = lambda: False,
) -> Transport:
    """By NATS, which is imported when it is needed."""
    from fedtwin.live.wire.nats_connection import require_nats

    require_nats()
    from fedtwin.live.wire.nats_transport import connect as connect_nats

    return await connect_nats(
        servers, name=name, credentials=credentials, insecure=insecure, on_reconnect=on_reconnect, expected=expected
    )


CLOCK, DISK = SystemClock(), SystemDisk()
REAL = Ports(connect=connect, clock=CLOCK, chance=SystemChance(), in_a_thread=asyncio.to_thread)
