"""Some of the questions that a run asks code of the user's, kept with their answers: asked again, they have the same ones.

Where a memory lies does not matter for that: what the digest of the code does not see is seen in the answers.
"""

import math
from collections.abc import Callable
from typing import Any

from fedtwin.usercode.source import is_ours

FIRST_DEVICES = 16
"""Of so many devices the first question is kept; of all later questions number 1, 2, 4, 8 …"""


class Questions:
    """Of one function, ``called`` as in ``policy.name = 'mine:POLICY'``; of one of fedtwin's own none are kept."""

    def __init__(self, called: str, function: Callable[..., Any] | None, first_devices: int = FIRST_DEVICES) -> None:
        self.called = called
        self._first_left, self._next_at, self._count = first_devices, 1.0, 0
        if function is None or is_ours(getattr(getattr(function, "__code__", None), "co_filename", "")):
            self._first_left, self._next_at = 0, math.inf
        self._devices: set[int] = set()
        self._kept: list[tuple[str, Callable[[], Any], Any]] = []

    def wants(self, device: int) -> bool:
        """Whether the question that is being asked is to be kept."""
        self._count += 1
        if self._first_left and device not in self._devices:
            self._first_left -= 1
            self._devices.add(device)
            return True
        if self._count < self._next_at:
            return False
        self._next_at = 2.0 * self._count
        return True

    def keep(self, where: str, ask: Callable[[], Any], answer: Any) -> None:
        """``ask`` asks again; what it was given must stay what it is."""
        self._kept.append((where, ask, _bits(answer)))

    def answered_otherwise(self) -> str | None:
        """Where it is that a question, asked again now, has another answer."""
        return next((where for where, ask, answer in self._kept if _bits(ask()) != answer), None)


def of_device(device: int, round_: int) -> str:
    return f"of device {device} in round {round_}"


def _bits(answer: Any) -> str:
    if isinstance(answer, tuple):
        return " ".join(map(_bits, answer))
    return float.hex(answer) if isinstance(answer, float) else repr(answer)
