"""Who floods is cut: the broker has no limit on what a connection publishes, so the edge server looks at its counters."""

import asyncio
import logging
import re
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from fedtwin.errors import FedtwinError
from fedtwin.live.broker.monitor import Connection
from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server.allowance import Allowance, Rates
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.wire.protocol import MESSAGE_SLACK_BYTES, NAME

LOOK_EVERY_S, CONNECTIONS_PER_S = 0.25, 1000
OWN = "edge"
FLOOD = "flood: it sent far more than it was asked for"


@runtime_checkable
class Watched(Protocol):
    """A broker of our own."""

    def connections(self) -> list[Connection] | None: ...

    def kick(self, cid: int) -> bool: ...

    def deny(self, subjects: Iterable[str]) -> None: ...

    def revoke(self, name: str) -> bool: ...


class Traffic:
    """Every connection's messages and bytes, against what its device was asked for."""

    def __init__(self, context: EdgeContext, broker: object) -> None:
        run = context.run
        self._context, self._run, self._in_a_thread = context, run, context.ports.in_a_thread
        self._broker = broker if isinstance(broker, Watched) else None
        live = run.core.live
        upload_bytes = run.model.most_upload_bytes + MESSAGE_SLACK_BYTES
        self._rates = Rates(max(live.flood_messages_per_s, 10.0 / live.heartbeat_s), live.flood_bytes_per_s, upload_bytes)
        self._allowances: dict[str, Allowance] = {}
        self._cut_before: set[str] = set()
        self._seen: dict[int, tuple[int, int]] | None = None
        if self._broker is not None:
            run.listeners.append(self._happened)

    async def watch_for_ever(self) -> None:
        if self._broker is None:
            say(logging.INFO, "who floods the broker is not watched: it is not started by this edge server")
            return
        clock = self._context.clock
        last = clock.monotonic_s()
        while True:
            await asyncio.sleep(max(LOOK_EVERY_S, len(self._seen or ()) / CONNECTIONS_PER_S))
            found = await self._in_a_thread(self._broker.connections)
            if found is None:
                continue
            last, since = clock.monotonic_s(), last
            flooders = self.flooders(found, last - since)
            for name, connections in flooders.items():
                await self._cut(name, connections)
            if not self._cut_before.issuperset(flooders):  # what they have sent would keep us busy for long: it is thrown away
                self._cut_before.update(flooders)
                self._context.transport.connect_anew()

    def flooders(self, connections: list[Connection], seconds: float) -> dict[str, list[Connection]]:
        """Names that have sent more than they may, each with its connections; ``seconds`` since the last look.

        What was sent before the first one is not known to be much: a broker may be older than we are.
        """
        of_name: dict[str, list[Connection]] = {}
        for one in connections:
            if one.name != OWN:
                of_name.setdefault(one.name, []).append(one)
        seen, self._seen = self._seen, {one.cid: (one.messages, one.size_bytes) for one in connections}
        if seen is None:
            return {}
        self._allowances = {
            name: allowance
            for name, allowance in self._allowances.items()
            if name in of_name or name in self._run.core.members or allowance.is_overdrawn
        }
        found = {}
        for name in self._allowances.keys() - of_name.keys():
            self._allowances[name].sent(0, 0, seconds)
        for name, its in of_name.items():
            allowance, before = self._allowance_of(name), [seen.get(one.cid, (0, 0)) for one in its]
            messages = sum(one.messages for one in its) - sum(count for count, _ in before)
            allowance.sent(messages, sum(one.size_bytes for one in its) - sum(size for _, size in before), seconds)
            if allowance.is_overdrawn:
                found[name] = its
        return found

    def _allowance_of(self, name: str) -> Allowance:
        return self._allowances.setdefault(name, Allowance(self._rates))

    def _happened(self, event: Event, run: LiveRun) -> None:
        if isinstance(event, events.Asked):
            self._allowance_of(run.core.names[event.device]).asked()
        elif isinstance(event, events.Dispatched):
            self._allowance_of(run.core.names[event.device]).given_a_task()

    async def _cut(self, name: str, connections: list[Connection]) -> None:
        """A device that has joined is left out. It is revoked where there are certificates; else its connections are ended, as
        often as they come, and nobody may speak under its name, or one that hellos came too fast from.
        """
        broker = self._broker
        assert broker is not None
        if name not in self._cut_before:
            self._run.refuse(name, "traffic", FLOOD)
        self._run.quarantine(name, FLOOD)
        try:
            if await self._in_a_thread(broker.revoke, name):
                say(logging.WARNING, "a device floods the broker and is revoked", device=name)
                return
        except (FedtwinError, OSError) as error:
            say(logging.ERROR, "a device floods the broker and cannot be revoked: do it", device=name, reason=str(error))
        names = {one for one in (name, *self._context.too_fast) if re.fullmatch(NAME, one)}
        subjects = [f"fedtwin.{self._run.name}.*.{one}" for one in names]
        await self._in_a_thread(broker.deny, subjects)
        self._context.too_fast.clear()
        cut = [await self._in_a_thread(broker.kick, one.cid) for one in connections if one.is_open]
        level = logging.DEBUG if name in self._cut_before else logging.WARNING
        say(level, "a connection floods the broker and is cut", device=name, connections=sum(cut), denied=" ".join(subjects))
