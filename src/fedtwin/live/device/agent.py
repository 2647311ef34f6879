"""The device agent: announces itself, answers when asked, trains, uploads, and says what it measured."""

import asyncio
import logging
import random
import time
from contextlib import suppress

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from pydantic import ValidationError

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.power import REASONS
from fedtwin.live.device import board
from fedtwin.live.device.delivery import PUBLISH_TIMEOUT_S, RETRY_S, Delivery, DeliveryError
from fedtwin.live.device.planner import AgentOptions, Offer, Planner
from fedtwin.live.device.trainers import TrainingError
from fedtwin.live.logs import say
from fedtwin.live.wire.objects import ObjectError, get_object
from fedtwin.live.wire.protocol import (
    UPLOAD_SLACK_BYTES,
    Accept,
    Ask,
    Decline,
    Done,
    Failed,
    Hello,
    Reading,
    Subjects,
    Task,
    Telemetry,
    Welcome,
    misfit,
    split_body,
)
from fedtwin.live.wire.transport import close, connect, unless_stopped

CALL_JITTER_S = 0.3
STOP_S = 5.0
REPORTED_S = 0.5
PART_S = 60.0

__all__ = ["Agent", "AgentOptions"]


class Agent:
    """One device of one run."""

    def __init__(self, options: AgentOptions) -> None:
        self._options, self._name = options, options.name
        self._subjects = Subjects(options.run)
        self._meter = board.EnergyMeter()
        self._samples = 0
        self._time_scale, self._heartbeat_s = 1.0, 5.0
        self._offer: Offer | None = None
        self._job: asyncio.Task[None] | None = None
        self._reporting = False
        self._stop, self._bell = asyncio.Event(), asyncio.Event()
        self._subscriptions: list[Subscription] = []
        self._welcome: Welcome | None = None
        self._other_run = self._unheard = False
        self._client: Client
        self._delivery: Delivery
        self._planner: Planner

    @property
    def busy(self) -> bool:
        return self._job is not None and not self._job.done()

    def stop(self) -> None:
        self._stop.set()
        self._bell.set()

    async def run(self) -> None:
        """Until ``stop``; a training that goes on then is finished and uploaded first, if that does not take long."""
        options = self._options
        connecting = connect(
            options.servers,
            name=self._name,
            inbox=self._name,
            credentials=options.credentials,
            insecure=options.insecure,
            on_reconnect=self._say_hello_again,
        )
        client = await unless_stopped(connecting, self._stop)
        if client is None:
            return
        self._client = client
        try:
            self._delivery = Delivery(self._client, self._subjects, self._name)
            while not self._stop.is_set() and await self._join():
                await self._beat_until_stopped()
            if self._job is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._job, timeout=STOP_S)
        finally:
            options.trainer.stop()
            await close(self._client)

    # Joining

    async def _join(self) -> bool:
        """Asks for the settings, prepares the training, announces itself; again for another run. False if stopped meanwhile."""
        if self._job is not None:
            await unless_stopped(asyncio.wait([self._job]), self._stop)
        for subscription in self._subscriptions:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()
        self._subscriptions, self._offer = [], None
        welcome = await self._hello(Hello())
        if welcome is None:
            return False
        self._welcome, self._other_run, self._unheard = welcome, False, False
        config = Config.model_validate(welcome.config)
        emulated, devices = self._options.fleet_device, config.fleet.devices
        if emulated is not None and not welcome.fleet_is_drawn:
            raise FedtwinError(
                f"--emulate {emulated} is not possible: the run's fleet is in a file (fleet.file) that is not here."
            )
        if emulated is not None and emulated >= devices:
            raise FedtwinError(f"--emulate {emulated} is not allowed: the run's fleet has devices 0 to {devices - 1}.")
        self._time_scale, self._heartbeat_s = welcome.time_scale, welcome.heartbeat_s
        self._samples = await asyncio.to_thread(self._options.trainer.prepare, config)
        self._planner = Planner(self._options, config, self._samples, self._meter)
        self._subscriptions = [
            await self._client.subscribe(self._subjects.ask(self._name), cb=self._on_ask),
            await self._client.subscribe(self._subjects.task(self._name), cb=self._on_task),
            await self._client.subscribe(self._subjects.call, cb=self._on_call),
        ]
        if await self._hello(self._introduction(fresh=True)) is None:
            return False
        say(logging.INFO, "joined", device=self._name, run=self._options.run, samples=self._samples)
        return True

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
        subject = self._subjects.hello(self._name)
        while not self._stop.is_set():
            try:
                answer = await self._client.request(subject, hello.encoded(), timeout=PUBLISH_TIMEOUT_S)
                welcome = Welcome.model_validate_json(answer.data)
            except (nats.errors.Error, TimeoutError):
                self._check_the_connection()
                if not told:
                    say(logging.INFO, "waiting for the edge server", device=self._name, run=self._options.run)
                    told = True
                await self._pause(RETRY_S)
                continue
            except ValidationError as error:
                raise FedtwinError(f"The edge server speaks another protocol: {misfit(error)}.") from None
            if not welcome.accepted:
                raise FedtwinError(f"The edge server refuses {self._name!r}: {welcome.reason}.")
            return welcome
        return None

    def _check_the_connection(self) -> None:
        if self._client.is_closed:
            raise FedtwinError(f"The server closed the connection of {self._name!r} for good.")
        last = str(self._client.last_error or "").lower()
        if "permissions violation" in last and self._subjects.hello(self._name).lower() in last:
            raise FedtwinError(f"--credentials: the broker lets them speak for another device or run, not as {self._name!r}.")

    async def _say_hello_again(self) -> None:
        """If the run is still the one we are prepared for: a new one has other settings, and is joined as one.

        Without an answer it is said again with the next heartbeat.
        """
        if not self._subscriptions:
            return
        self._unheard = True
        subject = self._subjects.hello(self._name)
        with suppress(nats.errors.Error, TimeoutError, ValidationError):
            answer = await self._client.request(subject, Hello().encoded(), timeout=PUBLISH_TIMEOUT_S)
            if Welcome.model_validate_json(answer.data) != self._welcome:
                say(logging.INFO, "the settings are others now", device=self._name, run=self._options.run)
                self._other_run = True
                self._bell.set()
                return
            await self._client.request(subject, self._introduction(fresh=False).encoded(), timeout=PUBLISH_TIMEOUT_S)
            self._unheard = False

    async def _on_call(self, message: Msg) -> None:  # noqa: ARG002
        """The edge server was started again and wants to hear everybody, not all at once."""
        await asyncio.sleep(random.uniform(0.0, CALL_JITTER_S))
        await self._say_hello_again()

    async def _beat_until_stopped(self) -> None:
        """Or until the run is another one."""
        while not self._stop.is_set() and not self._other_run:
            self._check_the_connection()
            with suppress(nats.errors.Error, TimeoutError):
                await self._client.publish(self._subjects.beat(self._name), self._telemetry().encoded())
            if self._unheard:
                await unless_stopped(self._say_hello_again(), self._stop)
            await self._pause(self._heartbeat_s)

    def _telemetry(self) -> Telemetry:
        offer = self._offer
        if offer is None:
            return Telemetry(temperature_c=board.temperature_c(), busy=self.busy)
        return Telemetry(
            gain=offer.link.gain,
            gain_source=offer.link.gain_source,
            cpu_hz=offer.cpu_hz,
            cpu_source=offer.cpu_source,
            temperature_c=board.temperature_c(),
            busy=self.busy,
        )

    # Working

    async def _on_ask(self, message: Msg) -> None:
        if self._job is not None and self._reporting:  # the server has the result before we hear that the broker has it
            await asyncio.wait([self._job], timeout=REPORTED_S)
        try:
            answer = self._answer(Ask.model_validate_json(message.data))
        except ValidationError as error:
            answer = Decline(reason=misfit(error))
        with suppress(nats.errors.Error):
            await message.respond(answer.encoded())

    def _answer(self, ask: Ask) -> Accept | Decline:
        if self.busy:
            return Decline(reason="busy")
        offer = self._offer = self._planner.look(ask.round)
        plan = offer.plan
        if not plan.feasible:
            return Decline(reason=REASONS[plan.reason], gain=offer.link.gain, cpu_hz=offer.cpu_hz)
        return Accept(
            gain=offer.link.gain,
            cpu_hz=offer.cpu_hz,
            power_w=plan.power_w,
            compute_s=plan.compute_s,
            upload_s=plan.upload_s,
            compute_j=plan.compute_j,
            upload_j=plan.upload_j,
        )

    async def _on_task(self, message: Msg) -> None:
        header, body = split_body(message.data)
        try:
            task = Task.model_validate_json(header)
        except ValidationError as error:
            say(logging.WARNING, "a task that cannot be read", device=self._name, reason=misfit(error))
            return
        if self.busy:
            say(logging.WARNING, "a task while another goes on", device=self._name, round=task.round)
            return
        known = self._offer is not None and self._offer.round == task.round
        offer = self._offer if known and self._offer is not None else self._planner.look(task.round)
        self._job = asyncio.create_task(self._work(task, bytes(body), offer))

    async def _work(self, task: Task, body: bytes, offer: Offer) -> None:
        """One task; whatever goes wrong is told, so that the edge server need not wait for the deadline."""
        try:
            done = await self._train_and_upload(task, body, offer)
            await self._report(done)
            say(logging.DEBUG, "uploaded", device=self._name, round=task.round, token=task.token, version=task.version)
        except DeliveryError as error:
            say(logging.ERROR, "not delivered", device=self._name, round=task.round, reason=str(error))
        except Exception as error:
            expected = isinstance(error, TrainingError | ObjectError)
            reason = str(error) if expected else f"{type(error).__name__}: {error}"
            say(logging.WARNING, "failed", device=self._name, round=task.round, reason=reason)
            with suppress(DeliveryError):
                await self._report(Failed(token=task.token, reason=reason[:500]))

    async def _report(self, result: Done | Failed) -> None:
        self._reporting = True
        try:
            await self._delivery.result(result)
        finally:
            self._reporting = False

    async def _train_and_upload(self, task: Task, body: bytes, offer: Offer) -> Done:
        if task.object_name is not None:
            bucket = self._subjects.models_bucket
            body = await get_object(self._client.jetstream(timeout=PART_S), bucket, task.object_name, task.model_bytes)
        if len(body) != task.model_bytes:
            raise TrainingError(f"{len(body)} bytes of the model came, {task.model_bytes} were announced")

        joules = self._meter.read() if self._meter.readable else None
        begun = time.perf_counter()
        update = await asyncio.to_thread(self._options.trainer.train, body, task.round)
        measured_s = (time.perf_counter() - begun) / self._time_scale
        if len(update.body) > task.model_bytes + UPLOAD_SLACK_BYTES:  # the broker would refuse it again and again
            raise TrainingError(f"the update has {len(update.body)} bytes, the model {task.model_bytes}")
        computed = self._planner.computed(offer, measured_s, joules)

        air_s = self._planner.radio.air_s(offer.plan)
        if computed.wait_s + air_s > 0.0:
            await asyncio.sleep((computed.wait_s + air_s) * self._time_scale)
        object_name, attempt = await self._delivery.upload(task.token, update.body)
        link_s = Reading(value=attempt.wall_s / self._time_scale, source="measured")
        if attempt.steady:  # else a broken connection is in it
            self._planner.uploaded(len(update.body), link_s.value)

        upload_s = Reading(value=air_s, source="modelled") if air_s > 0.0 else link_s
        return Done(
            token=task.token,
            version=task.version,
            samples=self._samples,
            model_bytes=len(update.body),
            train_loss=update.train_loss,
            object_name=object_name,
            cpu_hz=offer.cpu_hz,
            cpu_source=offer.cpu_source,
            power_w=offer.plan.power_w,
            compute_s=computed.time_s,
            upload_s=upload_s,
            compute_j=computed.energy_j,
            upload_j=Reading(value=offer.plan.power_w * upload_s.value, source="modelled"),
            link_s=link_s,
        )

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._bell.wait(), timeout=seconds)
        if not self._stop.is_set():
            self._bell.clear()
