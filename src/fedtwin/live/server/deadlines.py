"""What time brings: tasks whose deadline passes, devices that fall silent, quarantines that end."""

import asyncio
import logging
import math

from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.uploads import Uploads
from fedtwin.live.wire.troubles import TROUBLES

BEAT_S = 1.0


class Deadlines:
    """Looked at with every tick of the edge server."""

    def __init__(self, context: EdgeContext, uploads: Uploads) -> None:
        self._context, self._uploads, self._run, self._core = context, uploads, context.run, context.core
        self._give_up_after = self._put_off_s = self._answered_s = -math.inf
        self._asked = asyncio.Event()

    def put_off(self) -> None:
        """After a time without the broker, or without us: uploads that waited there come first, however many there are.

        They are all here when a pulse comes through that was sent after them.
        """
        self._put_off_s = self._run.now_s()
        self._give_up_after = self._context.clock.monotonic_s() + self._core.live.deadline_margin_s

    def look(self) -> None:
        if self._context.transport.connected:
            self.give_up_overdue()
            self._mark_the_silent()
            for name in self._context.heard_lately(self._context.held_back):
                self._context.let_back(name)
        self._release()

    def give_up_overdue(self) -> None:
        if self._context.clock.monotonic_s() < self._give_up_after or self._uploads_may_wait:
            return
        now_s = self._run.now_s()
        overdue = self._core.overdue(now_s)
        if any(task.sent.deadline_s > self._answered_s for task in overdue):
            self._asked.set()
        for task in overdue:
            if task.sent.deadline_s > self._answered_s:
                continue
            if self._core.is_timed_out(task):
                self._run.commit(self._core.drop(task, now_s))
                self._context.dropped.append(task.sent)
            else:
                self._run.commit(self._core.give_up(task, now_s, "the deadline has passed", "offline"))
            if (
                self._core.sync or self._core.live.late == "refuse"
            ):  # else its result may be on the way, and the upload is mixed in late
                self._uploads.forget(task.sent.token)

    async def ask_the_broker_for_ever(self) -> None:
        """A deadline falls when the broker has answered since. One that is silent for longer than a beat may have uploads."""
        while True:
            await self._asked.wait()
            asked_s = self._run.now_s()
            try:
                await self._context.transport.flush(BEAT_S)
            except TROUBLES:
                self.put_off()
                await asyncio.sleep(BEAT_S)
                continue
            self._asked.clear()
            self._answered_s = asked_s
            if self._context.transport.connected:
                self.give_up_overdue()

    @property
    def _uploads_may_wait(self) -> bool:
        return self._context.sends_pulses and self._uploads.pulse_sent_s < self._put_off_s

    def _mark_the_silent(self) -> None:
        if not self._core.started:
            return
        for device, (name, known) in enumerate(zip(self._core.names, self._core.twin.devices, strict=True)):
            if known.status == "idle" and self._context.is_silent(name):
                self._run.commit(events.StatusChanged(at_s=self._run.now_s(), device=device, status="offline"))

    def _release(self) -> None:
        now_s = self._run.now_s()
        for name, member in self._core.members.items():
            if member.quarantined_until_s is not None and now_s > member.quarantined_until_s:
                self._run.commit(events.Released(at_s=now_s, name=name))
                say(logging.INFO, "released", device=name)
