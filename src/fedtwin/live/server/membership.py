"""Who says hello, and what the devices tell of themselves meanwhile."""

import asyncio
import logging
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

from pydantic import ValidationError

from fedtwin.learning.data.dataset import other_features
from fedtwin.live.logs import say
from fedtwin.live.run.admission import TWINS, most_of_own, most_samples
from fedtwin.live.run.gathering import features_of, strays
from fedtwin.live.server.allowance import Pace
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.wire.ports import Incoming, TransportError
from fedtwin.live.wire.protocol import EDGE, NAME, Hello, Telemetry, Welcome, misfit
from fedtwin.live.wire.settings import shared_settings

HELLOS_PER_S, HELLOS_AT_ONCE = 2.0, 20.0


class Membership:
    """Hellos and heartbeats; of a device that sends very many some are dropped unread, before they cost anything."""

    def __init__(self, context: EdgeContext) -> None:
        self._context, self._run, self._core = context, context.run, context.core
        live = context.core.live
        self._dropped = 0
        self._hellos = Pace(HELLOS_PER_S, HELLOS_AT_ONCE)
        self._beats = Pace(max(live.flood_messages_per_s, 10.0 / live.heartbeat_s), live.flood_messages_per_s)
        self._most_samples, self._most_of_own = most_samples(context.run.config), most_of_own(context.run.config)

    async def open(self) -> None:
        subjects, transport = self._context.subjects, self._context.transport
        await transport.subscribe(subjects.hello("*"), self._on_hello)
        await transport.subscribe(subjects.beat("*"), self._on_beat)

    async def _on_hello(self, message: Incoming) -> None:
        name = message.subject.rpartition(".")[2]
        waits = message.reply.startswith(f"_INBOX.{name}.")  # else it may be somebody else's doing, and costs it nothing
        if not self._hellos.lets(name if waits else f"{name} ", self._context.clock.monotonic_s()):
            await self._drop(name)
            return
        try:
            hello = Hello.model_validate_json(message.data)
            reason = self._unwelcome(name, hello)
        except ValidationError as error:
            reason = misfit(error)
        if reason is not None:
            self._run.refuse(name, "hello", reason)
            await self._respond(message, Welcome(accepted=False, reason=reason))
            return
        if hello.samples is not None:
            await self._let_in(name, hello)
        live = self._core.live
        settings = shared_settings(self._core.for_devices)
        await self._respond(
            message,
            Welcome(
                accepted=True,
                config=settings,
                time_scale=live.time_scale,
                heartbeat_s=live.heartbeat_s,
                fleet_is_drawn=self._run.config.fleet.file is None,
                normalisation=self._core.normalisation,
                code=self._context.code if hello.code else None,
                identity=self._identity,
            ),
        )

    @property
    def _identity(self) -> str | None:
        """Where a device keeps what it left out; one of an earlier version knows neither and refuses the settings."""
        learning, began = self._run.config.learning, self._core.began
        return began.identity if began is not None and learning is not None and learning.compress != "none" else None

    async def _drop(self, name: str) -> None:
        """Unread; the others have their turn now and then."""
        self._dropped += 1
        if self._dropped % 100 == 0:
            self._context.too_fast.add(name)
            await asyncio.sleep(0)

    def _unwelcome(self, name: str, hello: Hello) -> str | None:
        if not re.fullmatch(NAME, name):
            return "name: 1 to 64 letters, digits, - and _ are allowed"
        if name == EDGE:
            return "name: edge is the edge server's own"
        if hello.samples is not None and hello.samples > self._most_samples:
            return f"samples: {hello.samples} is over fleet.samples_max = {self._most_samples}"
        return self._unfit(name, hello) or (None if hello.tensors is None else self._other_model(hello.tensors))

    def _unfit(self, name: str, hello: Hello) -> str | None:
        """Why what a device announces of its own is not taken: it would buy preference, or is not what it was."""
        own, known = hello.own.given if hello.own is not None else {}, self._core.members.get(name)
        for quantity, value in own.items():
            if value > self._most_of_own.get(quantity, math.inf):
                return f"own: {quantity} = {value:g} is over {self._most_of_own[quantity]:g}, the most in this fleet"
        if known is not None and hello.samples is not None and own != known.joined.own:
            return f"own: {known.joined.own} was announced before, now {own}"
        return None

    def _other_model(self, tensors: Mapping[str, tuple[int, ...]]) -> str | None:
        """Why the network that a device would train is not the run's: it is made for the device's samples and targets."""
        ours = {entry.name: entry.shape for entry in self._run.model.codec.layout.entries}
        learning = self._run.config.learning
        hint = f" (learning.dataset = {learning.dataset!r})" if learning is not None else ""
        wanted = f"its samples must have the shape, and its targets the number, of the run's{hint}"
        for name, shape in ours.items():
            if tensors.get(name) not in (None, shape):
                return f"model: {name} has shape {tensors[name]} with this device's data, and {shape} in the run: {wanted}"
        if others := sorted(ours.keys() ^ tensors.keys()):
            return f"model: the device would train another one, they differ in {', '.join(others[:3])}"
        return None

    async def _let_in(self, name: str, hello: Hello) -> None:
        context, run, core = self._context, self._run, self._core
        if name not in core.members and context.uploads_need_objects:
            await context.transport.make_bucket(
                context.subjects.uploads_bucket(name), 4 * run.model.most_upload_bytes, core.live.replicas
            )
        if name not in core.members:
            run.commit(core.join(name, hello, run.now_s()))
            context.strangers.pop(name, None)
            say(logging.INFO, "joined", device=name, samples=hello.samples, devices=len(core.members))
            self._compare_features(name, hello)
        elif hello.samples is not None and hello.samples != core.members[name].joined.samples:
            before = core.members[name].joined.samples
            run.commit(core.resize(name, hello.samples, run.now_s()))
            asked = {"started_anew": TWINS} if hello.fresh else {}
            say(logging.INFO, "has other samples now", device=name, samples=hello.samples, before=before, **asked)
        device = core.number_of(name)
        task = core.task_of(device) if device is not None else None
        if hello.fresh and task is not None:
            run.commit(core.give_up(task, run.now_s(), "the device was started anew", "offline"))
        context.alive(name)
        context.settle_limits()
        news = core.ready() or (core.started and hello.moments is not None)
        if news and (found := core.normalise(run.now_s())) is not None:
            run.commit(found)
            say(logging.INFO, "normalised", devices=len(found.names), channels=len(found.normalisation["mean"]))
            if core.started:  # who trains already has heard that there is none
                await context.call_the_fleet()
            self._compare_units(found.names)
        if core.ready():
            run.commit(core.start(run.now_s()))
            say(logging.INFO, "started", devices=len(core.names), channels=core.channels)
        context.wake.set()

    def _compare_features(self, name: str, hello: Hello) -> None:
        """Said loudly, and no more: who joins first could else keep all others out."""
        here = hello.moments.features if hello.moments is not None else None
        most = features_of(member.joined.moments for member in self._core.members.values())
        if here and most and (others := other_features(here, most)) is not None:
            what = "the features of a device have other names than those of most: its samples may mean something else"
            say(logging.ERROR, what, device=name, here=others[0], most=others[1])

    def _compare_units(self, names: Iterable[str]) -> None:
        """Said loudly, and no more: which of them is right nobody here can know."""
        members = self._core.members
        told = {name: moments for name in names if (moments := members[name].joined.moments) is not None}
        for stray in strays(told):
            whose = (
                "the samples of two devices are far apart" if len(stray.names) == 2 else "the samples of a device are far out"
            )
            what = (
                f"{whose}, as if in another unit: the run normalises by all of them, and what others have becomes nearly one "
                "number; begin a new run without the wrong ones"
            )
            say(logging.ERROR, what, device=" ".join(stray.names), feature=stray.feature, times=stray.times)

    async def _respond(self, message: Incoming, answer: Welcome) -> None:
        """Only into the inbox of who said hello: the subject for the answer is of the sender's choosing."""
        if message.reply.startswith(f"_INBOX.{message.subject.rpartition('.')[2]}."):
            await self._context.settled()
            with suppress(TransportError):
                await message.respond(answer.encoded())

    async def _on_beat(self, message: Incoming) -> None:
        name = message.subject.rpartition(".")[2]
        if not self._beats.lets(name, self._context.clock.monotonic_s()):
            await self._drop(name)
            return
        if not re.fullmatch(NAME, name):
            return
        try:
            telemetry = Telemetry.model_validate_json(message.data)
        except ValidationError as error:
            self._run.refuse(name, "telemetry", misfit(error))
            return
        compute = self._run.config.compute
        if telemetry.cpu_hz is not None and not compute.cpu_hz_floor <= telemetry.cpu_hz <= 10.0 * compute.cpu_hz_max:
            self._run.refuse(name, "telemetry", f"range: cpu_hz = {telemetry.cpu_hz:g}")
            return
        device = self._core.number_of(name)
        if device is None:
            if name in self._core.members:  # the run has not started: it waits for others
                self._context.heard[name] = self._context.clock.monotonic_s()
            else:
                self._context.remember_stranger(name, telemetry)
            return
        self._context.beats.heard(device, telemetry.gain, telemetry.cpu_hz, self._run.now_s())
        if telemetry.busy:
            self._context.heard[name] = self._context.clock.monotonic_s()
        else:
            self._context.alive(name)
