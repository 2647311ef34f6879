"""What the parts of the edge server share: the run, the connection, who was heard when, and what wakes the dispatcher."""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress

from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server.beats import Beats
from fedtwin.live.server.lease import Lease
from fedtwin.live.wire.ports import Ports, Transport, TransportError
from fedtwin.live.wire.protocol import MESSAGE_SLACK_BYTES, Subjects, Telemetry
from fedtwin.live.wire.real import REAL

MOST_STRANGERS = 10_000
WAITING_SHARE = 0.05
COME_BACK_S = 1.0


class EdgeContext:
    """Made when the connection stands."""

    def __init__(self, run: LiveRun, transport: Transport, ports: Ports = REAL, code: dict[str, str] | None = None) -> None:
        self.run, self.core = run, run.core
        self.code = code
        self.transport, self.ports, self.clock = transport, ports, ports.clock
        self.subjects = Subjects(run.name)
        self.wake = asyncio.Event()
        self.stopping = asyncio.Event()
        now = self.clock.monotonic_s()
        self.heard: dict[str, float] = dict.fromkeys(run.core.names, now)
        self.ask_after = 0.0
        self.path_is_well = self.sends_pulses = True
        self.storage_losses = 0
        self.lease: Lease | None = None
        self.dropped: list[events.Dispatched] = []
        self.beats = Beats()
        self.strangers: OrderedDict[str, Telemetry] = OrderedDict()
        self.too_fast: set[str] = set()
        self.held_back: set[str] = set()
        self._patience: dict[str, tuple[float, float]] = {}

    def wait_for_the_fleet(self) -> None:
        """After a time without the broker, or without us: devices come back within a moment, and are not asked before."""
        self.ask_after = self.clock.monotonic_s() + min(COME_BACK_S, self.core.live.ask_timeout_s)

    def settle_limits(self) -> None:
        """T_max and E_max of the boards, where they are to be had from the fleet, and it has grown enough."""
        if (limits := self.core.settle_limits(self.run.now_s())) is not None:
            self.run.commit(limits)
            self.wake.set()

    def lost_storage(self) -> None:
        """The broker no longer had what we put there."""
        self.storage_losses += 1

    @property
    def can_ask(self) -> bool:
        """Not while an answer's upload would come to nothing, and would be held against the device."""
        able = self.transport.connected and self.path_is_well and self.may_serve and self.clock.monotonic_s() > self.ask_after
        return able and not self.stopping.is_set()

    @property
    def may_serve(self) -> bool:
        """No other edge server can have the run at this moment."""
        return self.lease is None or self.lease.stands

    async def settled(self) -> None:
        """Waited for before anything goes outside: the run is ours, and all that happened in it is in the ledger."""
        if self.lease is not None:
            await self.lease.held()
        await self.run.settled()

    async def call_the_fleet(self) -> None:
        """What devices are told with a welcome is other now: they say hello again, who does not hear it when it is back."""
        await self.settled()
        with suppress(TransportError):
            await self.transport.publish(self.subjects.call, b"")

    @property
    def needs_objects(self) -> bool:
        """Whether the model is larger than a message."""
        return self.run.model.codec.size > self.transport.max_payload - MESSAGE_SLACK_BYTES

    @property
    def uploads_need_objects(self) -> bool:
        """Whether an upload may be, which other programs write with longer headers."""
        return self.run.model.most_upload_bytes > self.transport.max_payload - MESSAGE_SLACK_BYTES

    def alive(self, name: str) -> None:
        """The device was heard and is ready to be asked."""
        self.heard[name] = self.clock.monotonic_s()
        self.let_back(name)

    def let_back(self, name: str) -> None:
        """A device that was offline is asked again; one whose tasks came to nothing when its time is up."""
        device, now_s = self.core.number_of(name), self.run.now_s()
        told = name in self.held_back
        self.held_back.discard(name)
        if device is None or self.core.twin.devices[device].status != "offline" or self.patience_with(name) < 0.0:
            return
        wait_s = (self.core.held_back_until_s(device) - now_s) * self.core.live.time_scale
        if wait_s > 0.0:
            self.held_back.add(name)
            if not told:
                say(logging.WARNING, "backed off: its tasks came to nothing", device=name, for_s=round(wait_s, 1))
            return
        self.run.commit(events.StatusChanged(at_s=now_s, device=device, status="idle"))
        self.wake.set()

    def patience_with(self, name: str, waited_s: float = 0.0) -> float:
        """Seconds that may still be spent waiting for its answers; nobody else is asked for that channel meanwhile.

        A quarter of the time-out is for free each time, and so are two asks without an answer. After that a device gets a
        twentieth of the time, however often it is heard. What is longer than the time-out is not its fault: we stood still.
        """
        now, limit_s = self.clock.monotonic_s(), self.core.live.ask_timeout_s
        waited_s = min(waited_s, limit_s)
        left_s, since = self._patience.get(name, (2.0 * limit_s, now))
        left_s = min(left_s + WAITING_SHARE * (now - since), 2.0 * limit_s) - max(waited_s - 0.25 * limit_s, 0.0)
        self._patience[name] = left_s, now
        return left_s

    def remember_stranger(self, name: str, telemetry: Telemetry) -> None:
        """Telemetry of a device that has not joined: an MQTT sensor, say. It is shown, and never asked."""
        self.strangers[name], self.heard[name] = telemetry, self.clock.monotonic_s()
        if len(self.strangers) > MOST_STRANGERS:
            self.heard.pop(self.strangers.popitem(last=False)[0], None)

    def is_silent(self, name: str) -> bool:
        """Since long enough; who was never heard is given as much time from now on."""
        now = self.clock.monotonic_s()
        return now - self.heard.setdefault(name, now) > self.core.live.offline_after_s

    def heard_lately(self, names: Iterable[str]) -> list[str]:
        since = self.clock.monotonic_s() - self.core.live.offline_after_s
        return [name for name in names if self.heard.get(name, -math.inf) >= since]
