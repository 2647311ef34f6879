"""The commands' way into the event loop: one coroutine, stopped gracefully by SIGTERM or Ctrl-C, cut short by a second one."""

import asyncio
import ctypes
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fedtwin.errors import FedtwinError

T = TypeVar("T")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 256 * 2**20


def require_nats() -> None:
    try:
        import nats  # noqa: F401
    except ImportError:
        raise FedtwinError("The live fleet needs nats-py: pip install 'fedtwin[live]'.") from None


def keep_freed_memory() -> None:
    """Models come and go all the time. The C library would give each back to the system and fault it in again, page by page,
    which is half of the edge server's work at 1 MB a model. Where it is not glibc nothing changes.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES // 8)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def serve(make: Callable[[], tuple[Coroutine[Any, Any, T], Callable[[], None]]]) -> T:
    """Runs the coroutine ``make`` gives; the other thing it gives is called when the process is asked to stop."""

    keep_freed_memory()

    async def main() -> T:
        loop = asyncio.get_running_loop()
        work, stop = make()
        task = asyncio.ensure_future(work)
        asked = 0

        def asked_to_stop() -> None:
            nonlocal asked
            asked += 1
            if asked == 1:
                stop()
            else:
                task.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked_to_stop)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    return asyncio.run(main())
