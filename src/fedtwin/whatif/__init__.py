"""What if: the twin as it stands, forked and played on many worlds sampled from what it knows, under other settings.

``fedtwin.whatif`` is both this room and the function that it is for, so the room can be called.
"""

import sys
from types import ModuleType
from typing import Any

from fedtwin.whatif.answer import Answer, Future, Interval, Numbers
from fedtwin.whatif.asking import whatif

__all__ = ["Answer", "Future", "Interval", "Numbers", "whatif"]


class _Room(ModuleType):
    def __call__(self, *arguments: Any, **named: Any) -> Answer:
        return whatif(*arguments, **named)


sys.modules[__name__].__class__ = _Room
