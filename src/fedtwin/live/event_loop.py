"""The way into the event loop: one coroutine, stopped gracefully by SIGTERM or Ctrl-C, cut short by a second one."""

import asyncio
import ctypes
import logging
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from fedtwin.live.logs import say

T = TypeVar("T")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 256 * 2**20


def keep_freed_memory() -> None:
    """Models come and go all the time. The C library would give each back to the system and fault it in again, page by page,
    which is half of the edge server's work at 1 MB a model. Where it is not glibc nothing changes.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES // 8)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


class StopSignals:
    """SIGTERM and Ctrl-C until the end of the block: the first asks what is served to stop, the second cuts short what goes on.

    One that comes before anything is served stops it as soon as it is; one that comes afterwards finds everything ending.
    Only the main thread hears signals: in another one nothing is changed.
    """

    def __init__(self) -> None:
        self._count = 0
        self._tell: Callable[[], object] | None = None
        self._usual: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._usual = {number: signal.signal(number, self._heard) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, usual in self._usual.items():
            signal.signal(number, signal.SIG_DFL if usual is None else usual)

    @property
    def asked(self) -> bool:
        """A stop was asked for."""
        return self._count > 0

    def look_again_in(self, seconds: float) -> None:
        """For who waits without an event loop, and asks now and then."""
        time.sleep(seconds)

    def _heard(self, *_: object) -> None:
        self._count += 1
        if self._tell is not None:
            self._tell()
        elif self._count > 1:
            raise KeyboardInterrupt

    @contextmanager
    def told_to(self, stop: Callable[[], None], cut_short: Callable[[], object]) -> Iterator[None]:
        """Within the block the two are called, by the event loop that runs it."""
        loop = asyncio.get_running_loop()
        self._tell = lambda: loop.call_soon_threadsafe(stop if self._count == 1 else cut_short)
        try:
            if self._count:
                stop()
            yield
        finally:
            self._tell = None


def run_until_stopped(
    make: Callable[[], tuple[Coroutine[Any, Any, T], Callable[[], None]]],
    signals: StopSignals | None = None,
) -> T:
    """Runs the coroutine ``make`` gives; the other thing it gives is called when the process is asked to stop."""
    if signals is None:
        with StopSignals() as signals:
            return run_until_stopped(make, signals)
    keep_freed_memory()

    async def main() -> T:
        asyncio.get_running_loop().set_exception_handler(_in_one_line)
        work, stop = make()
        task = asyncio.ensure_future(work)
        with signals.told_to(stop, task.cancel):
            try:
                return await task
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None

    return asyncio.run(main())


def _in_one_line(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What fails where nobody waits for it, as tasks of nats-py do when a connection is ended under them."""
    error = context.get("exception")
    said = f"{type(error).__name__}: {error}" if error is not None else None
    say(logging.WARNING, "something failed in the background", what=context.get("message"), error=said)
    logging.getLogger("asyncio").debug("in the background", exc_info=error)


class Stoppable(Protocol):
    """What runs until it is told to stop."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...


def run_agent(make: Callable[[], Stoppable]) -> None:
    """``make`` is called in the event loop."""

    def made() -> tuple[Coroutine[Any, Any, None], Callable[[], None]]:
        agent = make()
        return agent.run(), agent.stop

    run_until_stopped(made)
