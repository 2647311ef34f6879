"""Clock, chance and threads of a simulated process."""

import asyncio
import random
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
BEGIN_WALL_S = 1_700_000_000.0


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class LoopClock:
    """The event loop's time; the wall clock beside it can be set."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.monotonic_s: Callable[[], float] = _now_s if loop is None else loop.time
        self.step_s = 0.0

    def wall_s(self) -> float:
        return BEGIN_WALL_S + self.monotonic_s() + self.step_s


class SeededChance:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def uniform(self, low: float, high: float) -> float:
        return self._chance.uniform(low, high)

    def token(self) -> str:
        return f"{self._chance.getrandbits(128):032x}"


async def in_a_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Done here, a moment after it was asked for; ``VirtualLoop`` has it so."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: function(*args, **kwargs))
