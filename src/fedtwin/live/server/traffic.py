"""Who floods is cut: the broker has no limit on what a connection publishes, so the edge server looks at its counters."""

import asyncio
import logging
import re
from collections.abc import Collection, Iterable
from typing import Protocol, runtime_checkable

from fedtwin.errors import FedtwinError
from fedtwin.live.broker.monitor import Connection
from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server.allowance import BURST_S, Allowance, Rates
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.wire.protocol import EDGE, MESSAGE_SLACK_BYTES, NAME

LOOK_EVERY_S, CONNECTIONS_PER_S, QUIET_S = 0.25, 1000, 0.2
UNNAMED, MOST_NAMED = "", 20
FLOOD = "flood: it sent far more than it was asked for"


@runtime_checkable
class Watched(Protocol):
    """A broker of our own."""

    has_certificates: bool

    def connections(self) -> list[Connection] | None: ...

    def keep_out(self, cids: Iterable[int], names: Collection[str], seconds: float) -> int: ...

    def unheard(self, subjects: Iterable[str]) -> None: ...

    def revoke(self, name: str) -> bool: ...

    def reinstate(self, name: str) -> bool: ...


class Traffic:
    """Every connection's messages and bytes, against what its device was asked for.

    Who has a certificate is revoked, once. Who has none is kept out and unheard, by name, for as long as a quarantine lasts.
    One that has no name is ended, and who comes without a name is kept out for the time of a burst; who was there stays.
    """

    def __init__(self, context: EdgeContext, broker: object) -> None:
        run = context.run
        self._context, self._run, self._in_a_thread = context, run, context.ports.in_a_thread
        self._broker = broker if isinstance(broker, Watched) else None
        live = run.core.live
        upload_bytes = run.model.most_upload_bytes + MESSAGE_SLACK_BYTES
        self._rates = Rates(max(live.flood_messages_per_s, 10.0 / live.heartbeat_s), live.flood_bytes_per_s, upload_bytes)
        self._allowances: dict[str, Allowance] = {}
        self._revoked: set[str] = set()
        self._out: dict[str, float] = {}
        self._unheard: dict[str, float] = {}
        self._seen: dict[int, tuple[int, int]] | None = None
        if self._broker is not None:
            run.listeners.append(self._happened)

    @property
    def cut(self) -> set[str]:
        """Names that are kept out or revoked, as far as this edge server knows."""
        return {*self._revoked, *self._out} - {UNNAMED}

    async def watch_for_ever(self) -> None:
        if self._broker is None:
            say(logging.INFO, "who floods the broker is not watched: it is not started by this edge server")
            return
        clock = self._context.clock
        last, to_end = clock.monotonic_s(), list[int]()
        await self._cut_again()
        while True:
            await self._keep_out(to_end, max(LOOK_EVERY_S, len(self._seen or ()) / CONNECTIONS_PER_S))
            found = await self._in_a_thread(self._broker.connections)
            if found is None:
                continue
            last, since = clock.monotonic_s(), last
            await self._let_in_again(last)
            before = self.cut
            for name, connections in self.flooders(found, last - since).items():
                await self._cut(name, connections)
            to_end = [one.cid for one in found if one.is_open and _key(one) in self._out]
            if self.cut - before:
                self._say_if_most_are_cut()
                await self._throw_away_what_they_sent()

    def _say_if_most_are_cut(self) -> None:
        """A fleet of flooders is hardly one: its allowance does not fit it, or somebody uses its names."""
        fleet = self._run.core.members.keys()
        cut = sorted(fleet & self.cut)
        if 2 * len(cut) > len(fleet):
            say(
                logging.ERROR,
                f"{len(cut)} of {len(fleet)} devices are cut as flooders: if they are honest, let them in with fedtwin admin "
                "release DEVICE, and raise live.flood_messages_per_s and live.flood_bytes_per_s for the next run",
                devices=" ".join(cut[:MOST_NAMED]),
            )

    async def _throw_away_what_they_sent(self) -> None:
        """It would keep us busy for long. Nobody is given a task meanwhile: what we said last might be lost with it."""
        self._context.wait_for_the_fleet()
        await asyncio.sleep(QUIET_S)
        self._context.transport.connect_anew()

    async def _keep_out(self, cids: list[int], seconds: float) -> None:
        """The time until the next look. Who is cut is looked for in it where there are no certificates."""
        assert self._broker is not None
        end = self._context.clock.monotonic_s() + seconds
        if self._out:
            await self._in_a_thread(self._broker.keep_out, cids, frozenset(self._out), seconds)
        await asyncio.sleep(max(end - self._context.clock.monotonic_s(), 0.0))

    async def release(self, name: str) -> str | None:
        """A name that was cut may come again; what it was, or None. The run's ``released`` does the rest."""
        if self._broker is None:
            return None
        if await self._in_a_thread(self._broker.reinstate, name):
            return "its certificate is good again"
        return "it is no longer cut off" if name in self.cut or name in self._unheard else None

    def flooders(self, connections: list[Connection], seconds: float) -> dict[str, list[Connection]]:
        """Names that have sent more than they may, each with its connections; ``seconds`` since the last look.

        What was sent before the first one is not known to be much: a broker may be older than we are.
        """
        of_name: dict[str, list[Connection]] = {}
        for one in connections:
            if one.name != EDGE:
                of_name.setdefault(_key(one), []).append(one)
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
        match event:
            case events.Asked():
                self._allowance_of(run.core.names[event.device]).asked()
            case events.Dispatched():
                self._allowance_of(run.core.names[event.device]).given_a_task()
            case events.Released():  # heard from the next look on
                for known in (self._allowances, self._out, self._unheard):
                    known.pop(event.name, None)
                if event.by is not None:
                    self._revoked.discard(event.name)
            case _:
                pass

    async def _cut(self, name: str, connections: list[Connection]) -> None:
        """A device that has joined is left out, too. Who was cut before is cut again where it is there all the same."""
        if name in self._out or (name in self._revoked and not any(one.is_open for one in connections)):
            return
        device = name if re.fullmatch(NAME, name) else "(unnamed)"
        self._run.refuse(device, "traffic", FLOOD)
        self._run.quarantine(name, FLOOD)
        assert self._broker is not None
        try:
            if await self._in_a_thread(self._broker.revoke, name):
                self._revoked.add(name)
                say(logging.WARNING, "a device floods the broker and is revoked", device=device)
                return
        except (FedtwinError, OSError) as error:
            say(logging.ERROR, "a device floods the broker and cannot be revoked: do it", device=device, reason=str(error))
        now = self._context.clock.monotonic_s()
        self._out[name] = until = now + self._run.core.live.quarantine_s
        if device != name:  # it may come again without a name, and is nobody that is known
            self._out[name] = self._out[UNNAMED] = now + BURST_S
        names = {one for one in (name, *self._context.too_fast) if re.fullmatch(NAME, one)}
        self._unheard |= dict.fromkeys(names, until)
        await self._let_unheard()
        self._context.too_fast.clear()
        say(logging.WARNING, "a connection floods the broker and is cut", device=device, unheard=" ".join(sorted(names)))

    async def _cut_again(self) -> None:
        """Who was cut before this edge server was started, and is in quarantine for it. Who was revoked still is."""
        assert self._broker is not None
        if self._broker.has_certificates:
            return
        now, now_s, live = self._context.clock.monotonic_s(), self._run.now_s(), self._run.core.live
        for name, member in self._run.core.members.items():
            if member.quarantined_until_s is not None and member.quarantine_reason == FLOOD:
                until = now + (member.quarantined_until_s - now_s) * live.time_scale
                self._out[name] = self._unheard[name] = until
        await self._let_unheard()

    async def _let_in_again(self, now: float) -> None:
        """Whose time is up. Who was released may be heard again, too."""
        for known in (self._out, self._unheard):
            for name in [name for name, until in known.items() if until < now]:
                del known[name]
        await self._let_unheard()

    async def _let_unheard(self) -> None:
        assert self._broker is not None
        await self._in_a_thread(self._broker.unheard, [f"fedtwin.{self._run.name}.*.{name}" for name in self._unheard])


def _key(one: Connection) -> str:
    """Whose allowance it uses: connections without a name have one each, and those that are gone one together."""
    return one.name or (f"#{one.cid}" if one.is_open else UNNAMED)
