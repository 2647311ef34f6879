"""No upload mixed in although devices are there, whatever the reason: said again and again, with the reasons counted."""

import logging

from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.core import Core
from fedtwin.live.run.events import Event
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.views.metrics import Metrics
from fedtwin.live.views.reasons import Reasons

MOST_NAMED = 8


class Standstill:
    """Counts what came to nothing since the last upload that was mixed in."""

    def __init__(self, context: EdgeContext, metrics: Metrics) -> None:
        self._context, self._metrics = context, metrics
        self._every_s = context.core.live.warn_after_s
        self._reasons = Reasons()
        self._since = self._next = self._context.clock.monotonic_s()
        self._begin()

    def _begin(self) -> None:
        self._reasons.clear()
        self._since = self._context.clock.monotonic_s()
        self._next = self._since + self._every_s
        self._metrics.moves()

    def happened(self, event: Event) -> None:
        if isinstance(event, events.Applied):
            self._begin()
        self._reasons.happened(event)

    def look(self, trouble: str | None) -> None:
        """``trouble``: why the broker lets no upload through."""
        now = self._context.clock.monotonic_s()
        if now < self._next:
            return
        self._next = now + self._every_s
        context = self._context
        devices, strangers = context.heard_lately(context.core.members), context.heard_lately(context.strangers)
        reasons = self._reasons.told()
        if waits := _waits_for(context.core):
            reasons.insert(0, waits)
        if trouble is not None:
            reasons.insert(0, trouble)
        if not (devices or strangers) or (context.core.open and not reasons):  # long trainings are no standstill
            return
        if strangers and not (devices and context.core.started):
            reasons.append(f"heard, but not joined: {' '.join(strangers[:MOST_NAMED])}")
        count = len(devices) or len(strangers)
        waited_s = round(now - self._since)
        told = "; ".join(reasons) or "nobody was asked"
        say(logging.WARNING, f"no upload was mixed in for {waited_s} s although {count} devices are there", reasons=told)
        self._metrics.stands_still(waited_s, self._reasons)


def _waits_for(core: Core) -> str | None:
    if core.started:
        return None
    return f"the run waits for {core.live.start_with or core.config.fleet.devices} devices"
