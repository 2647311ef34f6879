"""No upload mixed in although devices are there, whatever the reason: said again and again, with the reasons counted."""

import logging
import math
import time
from collections import Counter

from fedtwin.live import events
from fedtwin.live.core import Core
from fedtwin.live.desk import Desk
from fedtwin.live.events import Event
from fedtwin.live.logs import say
from fedtwin.live.metrics import Metrics

MOST_KINDS, MOST_TOLD, MOST_CHARACTERS = 100, 8, 80
OTHERS = "other reasons"


class Standstill:
    """Counts what came to nothing since the last upload that was mixed in."""

    def __init__(self, desk: Desk, metrics: Metrics) -> None:
        self._desk, self._metrics = desk, metrics
        self._every_s = desk.core.live.warn_after_s
        self._reasons: Counter[str] = Counter()
        self._since = self._next = time.monotonic()
        self._begin()

    def _begin(self) -> None:
        self._reasons.clear()
        self._since = time.monotonic()
        self._next = self._since + self._every_s
        self._metrics.moves()

    def happened(self, event: Event) -> None:
        match event:
            case events.Applied():
                self._begin()
            case events.Declined():
                self._count(f"declined: {event.reason}")
            case events.GivenUp():
                self._count(f"given up: {event.reason}")
            case events.Refused():
                self._count(f"refused: {event.reason.partition(':')[0]}")
            case _:
                pass

    def _count(self, reason: str) -> None:
        """Words of devices: cut, and no more kinds than can be kept."""
        reason = reason[:MOST_CHARACTERS]
        self._reasons[reason if reason in self._reasons or len(self._reasons) < MOST_KINDS else OTHERS] += 1

    def look(self, trouble: str | None) -> None:
        """``trouble``: why the broker lets no upload through."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._every_s
        devices = self._there(now)
        reasons = [f"{reason} ({count})" for reason, count in self._reasons.most_common(MOST_TOLD)]
        if waits := _waits_for(self._desk.core):
            reasons.insert(0, waits)
        if trouble is not None:
            reasons.insert(0, trouble)
        if devices == 0 or (self._desk.core.open and not reasons):  # long trainings are no standstill
            return
        waited_s = round(now - self._since)
        told = "; ".join(reasons) or "nobody was asked"
        say(logging.WARNING, f"no upload was mixed in for {waited_s} s although {devices} devices are there", reasons=told)
        self._metrics.stands_still(waited_s, self._reasons)

    def _there(self, now: float) -> int:
        desk = self._desk
        return sum(now - desk.heard.get(name, -math.inf) <= desk.core.live.offline_after_s for name in desk.core.members)


def _waits_for(core: Core) -> str | None:
    if core.started:
        return None
    return f"the run waits for {core.live.start_with or core.config.fleet.devices} devices"
