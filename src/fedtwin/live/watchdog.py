"""An event loop that hangs can say nothing, so a thread beside it does, with the place where it hangs."""

import asyncio
import logging
import sys
import threading
import traceback
from types import FrameType, TracebackType

from fedtwin.live.logs import say

LOOK_EVERY_S = 1.0
LOOKS, SAY_EVERY_LOOKS = 10, 60
INNERMOST = 6


class Watchdog:
    """Around what an event loop does. Looks are counted, not seconds: a process that was paused as a whole does not hang."""

    def __init__(self, look_every_s: float = LOOK_EVERY_S) -> None:
        self._look_every_s = look_every_s
        self._over, self._alive = threading.Event(), threading.Event()
        self._watched = threading.get_ident()

    async def __aenter__(self) -> None:
        self._beat = asyncio.create_task(self._beat_for_ever())
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._beat.cancel()

    async def _beat_for_ever(self) -> None:
        while True:
            self._alive.set()
            await asyncio.sleep(0.5 * self._look_every_s)

    def _watch(self) -> None:
        missed = 0
        while not self._over.wait(self._look_every_s):
            missed = 0 if self._alive.is_set() else missed + 1
            self._alive.clear()
            if missed >= LOOKS and (missed - LOOKS) % SAY_EVERY_LOOKS == 0:
                where = _place_of(sys._current_frames().get(self._watched))
                say(logging.ERROR, f"the edge server hangs since {missed * self._look_every_s:.0f} s", where=where)


def _place_of(frame: FrameType | None) -> str:
    """The innermost call first."""
    calls = traceback.extract_stack(frame)[-INNERMOST:] if frame is not None else []
    return " < ".join(f"{call.name} ({call.filename}:{call.lineno})" for call in reversed(calls))
