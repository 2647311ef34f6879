"""What a device does when it is asked: it answers by its plan, trains, uploads, and says what that took. One task at a time."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from pydantic import ValidationError

from fedtwin.formulas.power import REASONS
from fedtwin.live.device import board
from fedtwin.live.device.delivery import Delivery, DeliveryError
from fedtwin.live.device.planner import Offer, Planner
from fedtwin.live.device.sending import Packed, Sending
from fedtwin.live.device.trainers import Trainer, TrainingError, Update, train_on
from fedtwin.live.logs import say
from fedtwin.live.wire.ports import Incoming, ObjectError, Ports, Transport, TransportError
from fedtwin.live.wire.protocol import (
    MOST_JOULES,
    MOST_SECONDS,
    UPLOAD_SLACK_BYTES,
    Accept,
    Ask,
    Decline,
    Done,
    Drop,
    Failed,
    Reading,
    Subjects,
    Task,
    Telemetry,
    misfit,
    split_body,
)
from fedtwin.usercode import sentence_of_error

REPORTED_S = 0.5
ON_ITS_WAY_S, LOOK_S = 5.0, 0.1
PART_S = 60.0
LONG_S, TIMES_EXPECTED = 60.0, 10.0


class DroppedError(Exception):
    """The round of the task has ended without it."""


class TaskWork:
    """The tasks of one device in one run."""

    def __init__(
        self,
        transport: Transport,
        subjects: Subjects,
        name: str,
        *,
        ports: Ports,
        trainer: Trainer,
        planner: Planner,
        meter: board.EnergyMeter,
        sending: Sending,
        samples: int,
        time_scale: float,
        ready: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._transport, self._subjects, self._name, self._ports = transport, subjects, name, ports
        self._trainer, self._planner, self._meter, self._sending = trainer, planner, meter, sending
        self._samples, self._time_scale, self._ready = samples, time_scale, ready
        self._accepted_at, self.paused = -math.inf, False
        self._delivery = Delivery(transport, subjects, name, ports)
        self._offer: Offer | None = None
        self._reporting = False
        self._job: asyncio.Task[None] | None = None
        self._token, self._dropped = "", asyncio.Event()

    @property
    def busy(self) -> bool:
        return self._job is not None and not self._job.done()

    @property
    def is_free(self) -> bool:
        """No task goes on, and none that was accepted is on its way."""
        return not self.busy and self._ports.clock.monotonic_s() - self._accepted_at > ON_ITS_WAY_S

    def resize(self, samples: int) -> None:
        """D_n from here on; whoever asks waits meanwhile."""
        self._samples, self._offer = samples, None
        self._planner.resize(samples)

    async def until_free(self) -> None:
        """No round is taken any more, and this ends with the task that was; whoever stops waiting for that does not end it."""
        self.paused = True
        while not self.is_free:
            if self._job is not None and not self._job.done():
                await asyncio.wait([self._job])
            else:
                await asyncio.sleep(LOOK_S)

    async def finish(self, limit_s: float) -> None:
        """A task that takes longer than that is cut short."""
        if self._job is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._job, timeout=limit_s)

    def telemetry(self) -> Telemetry:
        """What was found when the device was asked last, and whether it works."""
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

    async def on_ask(self, message: Incoming) -> None:
        if self._job is not None and (self._reporting or self._dropped.is_set()):
            # the server has the result before we hear that the broker has it; and who was dropped ends at once
            await asyncio.wait([self._job], timeout=REPORTED_S)
        try:
            answer = self._answer(Ask.model_validate_json(message.data))
        except ValidationError as error:
            answer = Decline(reason=misfit(error))
        with suppress(TransportError):
            await message.respond(answer.encoded())

    def _answer(self, ask: Ask) -> Accept | Decline:
        if self.busy or self.paused:
            return Decline(reason="busy")
        self._planner.keep_to(ask.model_dump(include={"max_time_s", "max_energy_j", "energy_weight"}, exclude_none=True))
        offer = self._offer = self._planner.look(ask.round, ask.clock_s)
        plan = offer.plan
        if not plan.feasible:
            if not offer.link.available:
                return Decline(reason=REASONS[plan.reason])
            need = self._planner.at_full_power(offer)
            return Decline(
                reason=REASONS[plan.reason],
                gain=offer.link.gain,
                cpu_hz=offer.cpu_hz,
                time_s=min(need.compute_s + need.upload_s, MOST_SECONDS),
                energy_j=min(need.compute_j + need.upload_j, MOST_JOULES),
            )
        self._accepted_at = self._ports.clock.monotonic_s()
        return Accept(
            gain=offer.link.gain,
            cpu_hz=offer.cpu_hz,
            power_w=plan.power_w,
            compute_s=plan.compute_s,
            upload_s=plan.upload_s,
            compute_j=plan.compute_j,
            upload_j=plan.upload_j,
            samples=offer.samples if offer.samples != self._samples else None,
        )

    async def on_task(self, message: Incoming) -> None:
        header, body = split_body(message.data)
        if (dropped := _drop_in(header)) is not None:
            if self.busy and dropped.token == self._token:
                self._dropped.set()
            return
        try:
            task = Task.model_validate_json(header)
        except ValidationError as error:
            say(logging.WARNING, "a task that cannot be read", device=self._name, reason=misfit(error))
            return
        if self.busy:
            say(logging.WARNING, "a task while another goes on", device=self._name, round=task.round)
            return
        known = self._offer is not None and self._offer.round == task.round
        offer = self._offer if known and self._offer is not None else self._planner.look(task.round, task.clock_s)
        self._token, self._dropped, self._accepted_at = task.token, asyncio.Event(), -math.inf
        self._job = asyncio.create_task(self._work(task, bytes(body), offer))

    async def _work(self, task: Task, body: bytes, offer: Offer) -> None:
        """One task; whatever goes wrong is told, so that the edge server need not wait for the deadline."""
        try:
            done = await self._train_and_upload(task, body, offer)
            await self._report(done)
            say(logging.DEBUG, "uploaded", device=self._name, round=task.round, token=task.token, version=task.version)
        except DroppedError:
            say(logging.INFO, "dropped: the round has ended", device=self._name, round=task.round)
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
            body = await self._transport.get_object(bucket, task.object_name, task.model_bytes, answer_s=PART_S)
        if len(body) != task.model_bytes:
            raise TrainingError(f"{len(body)} bytes of the model came, {task.model_bytes} were announced")
        if self._ready is not None:
            await self._ready()

        joules = self._meter.read() if self._meter.readable else None
        clock = self._ports.clock
        begun = clock.monotonic_s()
        update, packed = await self._train(task.round, body, offer)
        measured_s = (clock.monotonic_s() - begun) / self._time_scale
        if len(packed.body) > task.model_bytes + UPLOAD_SLACK_BYTES:  # the broker would refuse it again and again
            raise TrainingError(f"the update has {len(packed.body)} bytes, the model {task.model_bytes}")
        computed = self._planner.computed(offer, measured_s, joules)

        air_s = self._planner.radio.air_s(offer.plan)
        await self._wait_unless_dropped((computed.wait_s + air_s) * self._time_scale)
        object_name, attempt = await self._delivery.upload(task.token, packed.body)
        self._sending.sent(packed)
        link_s = Reading(value=attempt.wall_s / self._time_scale, source="measured")
        if attempt.steady:  # else a broken connection is in it
            self._planner.uploaded(len(packed.body), link_s.value)

        upload_s = Reading(value=air_s, source="modelled") if air_s > 0.0 else link_s
        return Done(
            token=task.token,
            version=task.version,
            samples=offer.samples,
            model_bytes=len(packed.body),
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

    async def _train(self, round_: int, body: bytes, offer: Offer) -> tuple[Update, Packed]:
        """One that goes on much longer than it was to is told of once: nobody is asked meanwhile."""
        expected_s = offer.plan.compute_s * self._time_scale
        words = partial(say, device=self._name, round=round_, expected_s=expected_s)
        long_s = max(LONG_S, TIMES_EXPECTED * expected_s)
        telling = asyncio.get_running_loop().call_later(long_s, words, logging.WARNING, "the training still goes on")
        try:
            return await self._ports.in_a_thread(self._trained, body, round_, offer.samples)
        finally:
            telling.cancel()

    def _trained(self, model: bytes, round_: int, samples: int) -> tuple[Update, Packed]:
        """The training, and what is sent of it; it is the device's work to make it small."""
        try:
            update = train_on(self._trainer, model, round_, samples, self._samples)
        except SystemExit as error:
            raise TrainingError(sentence_of_error(error)) from None
        if update.train_loss is not None and not math.isfinite(update.train_loss):
            raise TrainingError(f"the training loss is {update.train_loss:g}: its learning rate may be too large")
        return update, self._sending.packed(model, update.body)

    async def _wait_unless_dropped(self, seconds: float) -> None:
        """A training is not cut short: it ends first."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._dropped.wait(), timeout=max(seconds, 0.0))
        if self._dropped.is_set():
            raise DroppedError


def _drop_in(header: bytes) -> Drop | None:
    try:
        return Drop.model_validate_json(header)
    except ValidationError:
        return None
