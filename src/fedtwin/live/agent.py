"""The device agent: announces itself, answers when asked, trains, uploads, and says what it measured."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import ValidationError

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.live import board
from fedtwin.live.logs import say
from fedtwin.live.objects import ObjectError, get_object, put_object
from fedtwin.live.protocol import (
    TOKEN_HEADER,
    UPLOAD_SLACK_BYTES,
    Accept,
    Ask,
    Decline,
    Done,
    Failed,
    Hello,
    Reading,
    Source,
    Subjects,
    Task,
    Telemetry,
    Welcome,
    misfit,
    split_body,
)
from fedtwin.live.radio import EmulatedRadio, Link, MeasuredRadio, Radio
from fedtwin.live.trainers import Trainer, TrainingError
from fedtwin.live.transport import close, connect, unless_stopped
from fedtwin.physics.compute import compute_energy_j
from fedtwin.physics.terms import Terms, terms_of
from fedtwin.policies import power_rule
from fedtwin.power import REASONS, Plan

MESSAGE_SLACK_BYTES = 4096
RETRY_S = 0.5
PUBLISH_TIMEOUT_S = 5.0
CALL_JITTER_S = 0.3
REPORTED_S = 0.5


@dataclass
class AgentOptions:
    """Who this device is and how its link is known. ``fleet_device``: be device K of the run's simulated fleet."""

    name: str
    servers: list[str]
    trainer: Trainer
    run: str = "main"
    radio: str = "measured"
    distance_m: float = 100.0
    fleet_device: int | None = None
    cpu_hz: float | None = None
    credentials: Path | None = None
    insecure: bool = False
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Offer:
    """What the device has agreed to: the plan it made, and what it rests on."""

    round: int
    link: Link
    cpu_hz: float
    cpu_source: Source
    plan: Plan


class Agent:
    """One device of one run."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._subjects = Subjects(options.run)
        self._client: Client | None = None
        self._config = Config()
        self._terms: Terms = terms_of(self._config)
        self._radio: Radio | None = None
        self._meter = board.EnergyMeter()
        self._samples = 0
        self._time_scale, self._heartbeat_s = 1.0, 5.0
        self._offer: Offer | None = None
        self._job: asyncio.Task[None] | None = None
        self._reporting = False
        self._model_bits: float | None = None
        self._stop = asyncio.Event()
        self.tasks_done = 0

    @property
    def busy(self) -> bool:
        return self._job is not None and not self._job.done()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        """Until ``stop``; a training that goes on then is finished and uploaded first, if that does not take long."""
        options = self._options
        connecting = connect(
            options.servers,
            name=options.name,
            inbox=options.name,
            credentials=options.credentials,
            insecure=options.insecure,
            on_reconnect=self._say_hello_again,
        )
        self._client = await unless_stopped(connecting, self._stop)
        if self._client is None:
            return
        try:
            if not await self._join():
                return
            await self._beat_until_stopped()
            if self._job is not None:
                with suppress(TimeoutError, asyncio.CancelledError):
                    await asyncio.wait_for(self._job, timeout=5.0)
        finally:
            options.trainer.stop()
            await close(self._client)

    # Joining

    async def _join(self) -> bool:
        """Asks for the settings, prepares the training, announces itself. False if stopped meanwhile."""
        welcome = await self._hello(Hello())
        if welcome is None:
            return False
        self._adopt(welcome)
        self._samples = await asyncio.to_thread(self._options.trainer.prepare, self._config)
        assert self._client is not None
        name = self._options.name
        await self._client.subscribe(self._subjects.ask(name), cb=self._on_ask)
        await self._client.subscribe(self._subjects.task(name), cb=self._on_task)
        await self._client.subscribe(self._subjects.call, cb=self._on_call)
        welcome = await self._hello(self._introduction(fresh=True))
        if welcome is None:
            return False
        say(logging.INFO, "joined", device=name, run=self._options.run, samples=self._samples)
        return True

    def _adopt(self, welcome: Welcome) -> None:
        options = self._options
        self._config = Config.model_validate(welcome.config)
        self._terms = terms_of(self._config)
        self._time_scale, self._heartbeat_s = welcome.time_scale, welcome.heartbeat_s
        full_power = power_rule(self._config) == "max"
        if options.radio == "emulated":
            self._radio = EmulatedRadio(
                self._config,
                options.name,
                fleet_device=options.fleet_device,
                distance_m=options.distance_m,
                full_power=full_power,
            )
        else:
            self._radio = MeasuredRadio(self._config, options.distance_m, full_power=full_power)

    def _introduction(self, *, fresh: bool) -> Hello:
        measures = ["compute_s", "link_s"]
        if board.cpu_hz() is not None:
            measures.append("cpu_hz")
        if self._meter.readable:
            measures.append("compute_j")
        return Hello(samples=self._samples, hardware=board.hardware(), measures=measures, fresh=fresh)

    async def _hello(self, hello: Hello) -> Welcome | None:
        """Until the edge server answers; it may not be there yet. A refusal is final."""
        told = False
        while not self._stop.is_set():
            try:
                assert self._client is not None
                answer = await self._client.request(
                    self._subjects.hello(self._options.name), hello.encoded(), timeout=PUBLISH_TIMEOUT_S
                )
                welcome = Welcome.model_validate_json(answer.data)
            except (nats.errors.Error, TimeoutError):
                if self._client is not None and self._client.is_closed:
                    raise FedtwinError(f"The server closed the connection of {self._options.name!r} for good.") from None
                if not told:
                    say(logging.INFO, "waiting for the edge server", device=self._options.name, run=self._options.run)
                    told = True
                await self._pause(RETRY_S)
                continue
            except ValidationError as error:
                raise FedtwinError(f"The edge server speaks another protocol: {misfit(error)}.") from None
            if not welcome.accepted:
                raise FedtwinError(f"The edge server refuses {self._options.name!r}: {welcome.reason}.")
            return welcome
        return None

    async def _say_hello_again(self) -> None:
        if self._samples:
            with suppress(nats.errors.Error, TimeoutError):
                assert self._client is not None
                await self._client.request(
                    self._subjects.hello(self._options.name), self._introduction(fresh=False).encoded(), timeout=2.0
                )

    async def _on_call(self, message: Msg) -> None:  # noqa: ARG002
        """The edge server was started again and wants to hear everybody, not all at once."""
        await asyncio.sleep(random.uniform(0.0, CALL_JITTER_S))
        await self._say_hello_again()

    async def _beat_until_stopped(self) -> None:
        assert self._client is not None
        while not self._stop.is_set():
            if self._client.is_closed:
                raise FedtwinError(f"The server closed the connection of {self._options.name!r} for good.")
            with suppress(nats.errors.Error, TimeoutError):
                await self._client.publish(self._subjects.beat(self._options.name), self._telemetry().encoded())
            await self._pause(self._heartbeat_s)

    def _telemetry(self) -> Telemetry:
        measured, offer = board.cpu_hz(), self._offer
        return Telemetry(
            gain=None if offer is None else offer.link.gain,
            gain_source="modelled" if offer is None else offer.link.gain_source,
            cpu_hz=measured if self._options.fleet_device is None else None,
            cpu_source="measured",
            temperature_c=board.temperature_c(),
            busy=self.busy,
        )

    # Working

    async def _on_ask(self, message: Msg) -> None:
        try:
            ask = Ask.model_validate_json(message.data)
        except ValidationError as error:
            await message.respond(Decline(reason=misfit(error)).encoded())
            return
        if self._job is not None and self._reporting:  # the server has the result before we hear that the broker has it
            await asyncio.wait([self._job], timeout=REPORTED_S)
        if self.busy:
            await message.respond(Decline(reason="busy").encoded())
            return
        offer = self._offer = self._look(ask.round)
        plan = offer.plan
        if not plan.feasible:
            decline = Decline(reason=REASONS[plan.reason], gain=offer.link.gain, cpu_hz=offer.cpu_hz)
            await message.respond(decline.encoded())
            return
        accept = Accept(
            gain=offer.link.gain,
            cpu_hz=offer.cpu_hz,
            power_w=plan.power_w,
            compute_s=plan.compute_s,
            upload_s=plan.upload_s,
            compute_j=plan.compute_j,
            upload_j=plan.upload_j,
        )
        await message.respond(accept.encoded())

    def _look(self, round_: int) -> Offer:
        assert self._radio is not None
        link = self._radio.look(round_)
        cpu_hz, source = self._cpu(link)
        bits = self._model_bits or self._terms.update_bits
        return Offer(round_, link, cpu_hz, source, self._radio.plan(self._terms, link, cpu_hz, self._samples, bits))

    def _cpu(self, link: Link) -> tuple[float, Source]:
        """As emulated, as given, as the system tells, or as configured; always within what the server takes."""
        compute = self._config.compute
        if link.cpu_hz is not None:
            return link.cpu_hz, "modelled"
        if self._options.cpu_hz is not None:
            return self._options.cpu_hz, "modelled"
        measured = board.cpu_hz()
        if measured is None:
            return compute.cpu_hz_min, "modelled"
        return min(max(measured, compute.cpu_hz_floor), 10.0 * compute.cpu_hz_max), "measured"

    async def _on_task(self, message: Msg) -> None:
        header, body = split_body(message.data)
        try:
            task = Task.model_validate_json(header)
        except ValidationError as error:
            say(logging.WARNING, "a task that cannot be read", device=self._options.name, reason=misfit(error))
            return
        if self.busy:
            say(logging.WARNING, "a task while another goes on", device=self._options.name, round=task.round)
            return
        offer = self._offer if self._offer is not None and self._offer.round == task.round else self._look(task.round)
        self._job = asyncio.create_task(self._work(task, bytes(body), offer))

    async def _work(self, task: Task, body: bytes, offer: Offer) -> None:
        try:
            await self._train_and_upload(task, body, offer)
            self.tasks_done += 1
        except (TrainingError, ObjectError) as error:
            say(logging.WARNING, "failed", device=self._options.name, round=task.round, reason=str(error))
            await self._report(Failed(token=task.token, reason=str(error)[:500]))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logging.getLogger("fedtwin.live").exception("a task came to nothing")
            await self._report(Failed(token=task.token, reason=f"{type(error).__name__}: {error}"[:500]))

    async def _train_and_upload(self, task: Task, body: bytes, offer: Offer) -> None:
        assert self._client is not None
        name, js = self._options.name, self._client.jetstream()
        if task.object_name is not None:
            body = await get_object(js, self._subjects.models_bucket, task.object_name, task.model_bytes)
        if len(body) != task.model_bytes:
            raise TrainingError(f"{len(body)} bytes of the model came, {task.model_bytes} were announced")

        before, joules = time.perf_counter(), self._meter.read() if self._meter.readable else None
        update = await asyncio.to_thread(self._options.trainer.train, body, task.round)
        measured_s = (time.perf_counter() - before) / self._time_scale
        if len(update.body) > task.model_bytes + UPLOAD_SLACK_BYTES:  # the broker would refuse it again and again
            raise TrainingError(f"the update has {len(update.body)} bytes, the model {task.model_bytes}")
        compute_s, compute_j = await self._compute(offer, measured_s, joules)

        air_s = self._radio.air_s(offer.plan) if self._radio is not None else 0.0
        if air_s:
            await asyncio.sleep(air_s * self._time_scale)
        started = time.perf_counter()
        object_name = None
        if len(update.body) > self._client.max_payload - MESSAGE_SLACK_BYTES:
            object_name = task.token
            await self._retried(lambda: put_object(js, self._subjects.uploads_bucket(name), task.token, update.body))
        else:
            await self._publish(self._subjects.upload(name), update.body, f"{task.token}-u", task.token)
        link_wall_s = time.perf_counter() - started
        bits = 8.0 * len(update.body)
        self._model_bits = bits
        assert self._radio is not None
        self._radio.learn(bits, link_wall_s)

        link_s = Reading(value=link_wall_s / self._time_scale, source="measured")
        upload_s = Reading(value=air_s, source="modelled") if air_s else link_s
        power_w = offer.plan.power_w
        done = Done(
            token=task.token,
            version=task.version,
            samples=self._samples,
            model_bytes=len(update.body),
            train_loss=update.train_loss,
            object_name=object_name,
            cpu_hz=offer.cpu_hz,
            cpu_source=offer.cpu_source,
            power_w=power_w,
            compute_s=compute_s,
            upload_s=upload_s,
            compute_j=compute_j,
            upload_j=Reading(value=power_w * upload_s.value, source="modelled"),
            link_s=link_s,
        )
        await self._report(done)
        say(logging.DEBUG, "uploaded", device=name, round=task.round, token=task.token, version=task.version)

    async def _compute(self, offer: Offer, measured_s: float, joules: list[int] | None) -> tuple[Reading, Reading]:
        """Time and energy of the training. An emulated CPU takes the time of its model; a real one teaches us its cycles."""
        if offer.link.cpu_hz is not None:
            left_s = offer.plan.compute_s - measured_s
            if left_s > 0.0:
                await asyncio.sleep(left_s * self._time_scale)
            slower = measured_s > offer.plan.compute_s
            time_s = Reading(value=max(measured_s, offer.plan.compute_s), source="measured" if slower else "modelled")
            joule = offer.plan.compute_j if not slower else self._terms.capacitance * offer.cpu_hz**3 * measured_s
            return time_s, Reading(value=joule, source="modelled")
        cycles = max(measured_s * offer.cpu_hz / self._samples, 1e-3)
        learned = cycles if self.tasks_done == 0 else 0.5 * (cycles + self._terms.cycles_per_sample)
        self._terms = self._terms._replace(cycles_per_sample=learned)
        time_s = Reading(value=measured_s, source="measured")
        if joules is not None:
            spent_j = self._meter.joules_since(joules)
            if spent_j > 0.0:
                return time_s, Reading(value=spent_j, source="measured")
        exact = self._terms._replace(cycles_per_sample=cycles)
        return time_s, Reading(value=compute_energy_j(exact, offer.cpu_hz, self._samples), source="modelled")

    async def _report(self, result: Done | Failed) -> None:
        self._reporting = True
        try:
            await self._publish(self._subjects.result(self._options.name), result.encoded(), f"{result.token}-r", result.token)
        finally:
            self._reporting = False

    async def _publish(self, subject: str, data: bytes, message_id: str, token: str) -> None:
        """Until the broker has it on disk. It knows a repeated message by its id."""
        assert self._client is not None
        js = self._client.jetstream()
        headers = {"Nats-Msg-Id": message_id, TOKEN_HEADER: token}
        await self._retried(lambda: js.publish(subject, data, timeout=PUBLISH_TIMEOUT_S, headers=dict(headers)))

    async def _retried(self, action: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await action()
                return
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError) as error:
                if self._client is None or self._client.is_closed:
                    raise TrainingError("the connection is closed for good") from None
                say(logging.DEBUG, "trying again", device=self._options.name, reason=str(error) or type(error).__name__)
                await asyncio.sleep(RETRY_S * random.uniform(0.2, 1.0))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), timeout=seconds)
