"""No upload mixed in although devices are there, whatever the reason: said again and again, with the reasons counted."""

import logging

from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.core import Core
from fedtwin.live.run.events import Event
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.views.advice import Advice
from fedtwin.live.views.metrics import Metrics
from fedtwin.live.views.reasons import Reasons, all_overdue

MOST_NAMED = 8


class Standstill:
    """Counts what came to nothing since the last upload that was mixed in."""

    def __init__(self, context: EdgeContext, metrics: Metrics) -> None:
        self._context, self._metrics = context, metrics
        self._every_s = context.core.live.warn_after_s
        self._reasons, self._advice = Reasons(), Advice(context.core)
        self._said_who_declines = False
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
        self._advice.happened(event)
        if isinstance(event, events.Passed | events.Filled):
            self._say_that_everybody_declines()

    def _say_that_everybody_declines(self) -> None:
        """At once, where nothing was mixed in yet: the limits do not fit the fleet."""
        core = self._context.core
        if self._said_who_declines or core.applied or core.open or (advice := self._advice.told()) is None:
            return
        self._said_who_declines = True
        say(logging.ERROR, f"everybody declines, nothing is trained: {advice}")

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
        if self._reasons and (advice := self._advice.told()) is not None:
            reasons.append(advice)
        if context.core.halted:
            reasons.insert(0, context.core.halted)
        if context.core.open and (overdue := all_overdue(context.core, context.run.now_s())) is not None:
            reasons.insert(0, overdue)
        if left_out := _all_left_out(context.core):
            reasons.insert(0, left_out)
            devices = devices or list(context.core.members)
        if not (devices or strangers) or (context.core.open and not reasons):  # long trainings are no standstill
            return
        if strangers and not (devices and context.core.started):
            reasons.append(f"heard, but not joined: {' '.join(strangers[:MOST_NAMED])}")
        count = len(devices) or len(strangers)
        waited_s = round(now - self._since)
        told = "; ".join(reasons) or "nobody was asked"
        say(logging.WARNING, f"no upload was mixed in for {waited_s} s although {count} devices are there", reasons=told)
        self._metrics.stands_still(waited_s, self._reasons)


def _all_left_out(core: Core) -> str | None:
    if core.members and core.members.keys() <= {*core.drained}:
        return "all are drained: fedtwin admin release NAME lets one back"
    if not core.members or not all(map(core.is_quarantined, core.members)):
        return None
    why = [f"{name} ({member.quarantine_reason})" for name, member in core.members.items()]
    more = f" and {len(why) - MOST_NAMED} more" if len(why) > MOST_NAMED else ""
    return f"all are in quarantine: {', '.join(why[:MOST_NAMED])}{more}, fedtwin admin release NAME lets one back"


def _waits_for(core: Core) -> str | None:
    if core.started:
        return None
    return f"the run waits for {core.live.start_with or core.config.fleet.devices} devices"
