"""Small disks in memory that can be filled and emptied; only root can mount them."""

import contextlib
import os
import subprocess
from pathlib import Path

CHUNK_BYTES = 2**20


class SmallDisk:
    """Mounted on an empty folder, which it makes."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder, self._filling = folder, folder / "filling"
        folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        if os.getuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
            raise PermissionError("a disk can be mounted by root only")

    def fill(self) -> None:
        """To the last byte."""
        with self._filling.open("wb", buffering=0) as file:
            for size in (CHUNK_BYTES, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        self._filling.unlink(missing_ok=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=True)
