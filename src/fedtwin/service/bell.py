"""A bell that a thread rings and event loops hear."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Bell:
    """Whoever listens is woken by every ring; rings that come before it has looked are one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def ring(self) -> None:
        with self._lock:
            for event, loop in self._listeners.items():
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)

    @contextmanager
    def heard(self) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        with self._lock:
            self._listeners[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            with self._lock:
                del self._listeners[event]
