"""Memory that is given back: tables are read, summed up and forgotten, and the system has better uses for what they took."""

import ctypes
import sys
from contextlib import suppress
from importlib.abc import MetaPathFinder
from typing import Any

import pyarrow as pa

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
LARGE_BYTES = 256 * 1024
SYSTEM = ctypes.CDLL(None)


def keep_memory_low(*, pandas: bool) -> None:
    """Called once, before anything is read. Where pandas is not needed, pyarrow does not find it: it would import it, and that
    takes more memory than a fleet.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with suppress(AttributeError):  # Linux
        SYSTEM.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        SYSTEM.mallopt(M_ARENA_MAX, 2)
    if not pandas:
        sys.meta_path.insert(0, _Without())


class _Without(MetaPathFinder):
    """As if pandas were not installed."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("The service does without pandas.", name=name)


def give_memory_back() -> None:
    """What is free goes back to the system."""
    with suppress(AttributeError):
        SYSTEM.malloc_trim(0)
