"""The edge server: the network side of a live run. What is decided, checked and written is in ``core``, ``gate``, ``run``."""

import asyncio
import logging
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StreamConfig
from pydantic import ValidationError

from fedtwin.live import events
from fedtwin.live.broker import Broker
from fedtwin.live.evaluation import Evaluations
from fedtwin.live.events import Event
from fedtwin.live.logs import say
from fedtwin.live.metrics import Metrics
from fedtwin.live.mirror import Mirror, open_mirror
from fedtwin.live.objects import ObjectError, delete_object, get_object, make_bucket, put_object
from fedtwin.live.protocol import (
    ANSWER,
    NAME,
    RESULT,
    TOKEN_HEADER,
    Ask,
    Decline,
    Done,
    Failed,
    Hello,
    Subjects,
    Task,
    Telemetry,
    Welcome,
    misfit,
    with_body,
)
from fedtwin.live.run import LiveRun, new_token
from fedtwin.live.transport import close, connect, unless_stopped

TICK_S = 0.05
MIRROR_EVERY_S = 0.5
MESSAGE_SLACK_BYTES = 4096
ACK_WAIT_S = 30.0
MOST_WAITING_PER_DEVICE = 4
DRAIN_LOOKS = 60
CONSUMER = "edge"


@dataclass
class EdgeOptions:
    """Where the broker is; whether it is ours to look after."""

    servers: list[str]
    broker: Broker | None = None
    credentials: Path | None = None
    insecure: bool = False
    metrics: str | None = None
    grace_s: float = 10.0
    on_event: list["Listener"] = field(default_factory=list)


class Listener:
    """Hears every event of a run, as the demo's screen does."""

    def happened(self, event: Event, run: LiveRun) -> None: ...


@dataclass
class HeldUpload:
    """The bytes of an upload whose result has not come yet. They are acknowledged with it."""

    message: Msg
    body: bytes


class EdgeServer:
    """One run, until it is done or stopped."""

    def __init__(self, run: LiveRun, options: EdgeOptions) -> None:
        self.run = run
        self.core = run.core
        self._options = options
        self._subjects = Subjects(run.name)
        self.metrics = Metrics()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._heard: dict[str, float] = {}
        self._held: dict[str, HeldUpload] = {}
        self._objects: dict[int, str] = {}
        self._tried_at = 0.0
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._mirror: Mirror | None = None
        self._evaluations = Evaluations(run, self._subjects, self._happen)
        self._consumer_lock = asyncio.Lock()
        self._trouble: BaseException | None = None
        run.on_event = self._tell

    def stop(self) -> None:
        """No device is asked any more; uploads on their way are waited for, a little."""
        self._stopping.set()
        self._wake.set()

    async def serve(self) -> bool:
        """Runs until all rounds are played (True), or ``stop`` was called (False)."""
        options = self._options
        if options.metrics is not None:
            port = self.metrics.serve(options.metrics)
            say(logging.INFO, "metrics", port=port)
        connecting = connect(
            options.servers,
            name="edge",
            inbox="edge",
            credentials=options.credentials,
            insecure=options.insecure,
            on_reconnect=self._on_reconnect,
        )
        self._client = await unless_stopped(connecting, self._stopping)
        if self._client is None:
            self._happen(events.Stopped(at_s=self.run.now_s(), finished=False))
            return False
        try:
            await self._open()
            now = time.monotonic()
            self._heard = dict.fromkeys(self.core.names, now)
            say(logging.INFO, "serving", run=self.run.name, servers=" ".join(options.servers), version=self.core.version)
            await self._client.publish(self._subjects.call, b"")
            tasks = [
                asyncio.create_task(work) for work in (self._ask_for_ever(), self._tick_for_ever(), self._mirror_for_ever())
            ]
            finished = await self._until_done(tasks)
            if finished:
                await self._until_drained()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if finished:
                await self._evaluations.last()
            if self._mirror is not None:
                with suppress(nats.errors.Error, nats.js.errors.Error, TimeoutError):
                    await asyncio.wait_for(self._mirror.write(self.core), timeout=5.0)
            self._happen(events.Stopped(at_s=self.run.now_s(), finished=finished))
            return finished
        finally:
            await close(self._client)

    async def _until_done(self, tasks: list[asyncio.Task[None]]) -> bool:
        deadline = None
        while not self.core.done:
            for task in tasks:
                if task.done() and (error := task.exception()) is not None:
                    raise error
            if self._trouble is not None:
                raise self._trouble
            if self._stopping.is_set():
                deadline = deadline or time.monotonic() + self._options.grace_s
                if not self.core.open or time.monotonic() > deadline:
                    return False
            await asyncio.sleep(TICK_S)
        return True

    async def _until_drained(self) -> None:
        """Uploads of tasks that had been given up may still wait at the broker."""
        for _ in range(DRAIN_LOOKS):
            with suppress(nats.errors.Error, nats.js.errors.Error, TimeoutError):
                found = await self.js.consumer_info(self._subjects.stream, CONSUMER)
                if not found.num_pending and not found.num_ack_pending:
                    return
            await asyncio.sleep(TICK_S)

    def _happen(self, event: Event) -> None:
        self.run.commit(event)

    def _tell(self, event: Event) -> None:
        self.metrics.happened(event, self.core.live.time_scale)
        for listener in self._options.on_event:
            listener.happened(event, self.run)

    # The broker

    @property
    def js(self) -> JetStreamContext:
        assert self._js is not None
        return self._js

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def _open(self) -> None:
        self._js = self.client.jetstream(timeout=10.0)
        subjects = self._subjects
        limit = self.client.max_payload
        stream = StreamConfig(
            name=subjects.stream,
            subjects=[subjects.upload("*"), subjects.result("*")],
            retention=RetentionPolicy.WORK_QUEUE,
            discard=DiscardPolicy.NEW,
            discard_new_per_subject=True,
            max_msgs_per_subject=MOST_WAITING_PER_DEVICE,
            max_msg_size=min(self.run.most_upload_bytes + MESSAGE_SLACK_BYTES, limit),
        )
        try:
            await self.js.update_stream(stream)
        except nats.js.errors.NotFoundError:
            await self.js.add_stream(stream)
        if self._needs_objects:
            await make_bucket(self.js, subjects.models_bucket, 64 * self.run.most_upload_bytes)
        self._mirror = await open_mirror(self.js, subjects.twin_bucket)
        self._evaluations.open(self.client, self.js, needs_objects=self._needs_objects)
        await self.client.subscribe(subjects.hello("*"), cb=self._on_hello)
        await self.client.subscribe(subjects.beat("*"), cb=self._on_beat)
        await self._consume()

    @property
    def _needs_objects(self) -> bool:
        return self.run.model.codec.size > self.client.max_payload - MESSAGE_SLACK_BYTES

    async def _consume(self) -> None:
        """A new consumer: whatever was delivered and not acknowledged before comes again at once."""
        async with self._consumer_lock:
            with suppress(nats.js.errors.NotFoundError):
                await self.js.delete_consumer(self._subjects.stream, CONSUMER)
            self._held.clear()
            config = ConsumerConfig(
                durable_name=CONSUMER, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_S, max_ack_pending=10_000
            )
            old = getattr(self, "_subscription", None)
            if old is not None:
                with suppress(nats.errors.Error):
                    await old.unsubscribe()
            self._subscription = await self.js.subscribe(
                "", stream=self._subjects.stream, durable=CONSUMER, config=config, cb=self._on_delivery, manual_ack=True
            )

    async def _on_reconnect(self) -> None:
        say(logging.INFO, "reconnected")
        for _ in range(20):
            try:
                await self._consume()
                await self.client.publish(self._subjects.call, b"")
                break
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
                say(logging.DEBUG, "the broker is not ready yet", reason=str(error))
                await asyncio.sleep(0.2)
        self._wake.set()

    # Devices

    async def _on_hello(self, message: Msg) -> None:
        name = message.subject.rpartition(".")[2]
        try:
            hello = Hello.model_validate_json(message.data)
        except ValidationError as error:
            self.run.refuse(name, "hello", misfit(error))
            await self._respond(message, Welcome(accepted=False, reason=misfit(error)))
            return
        if reason := self._unwelcome(name, hello):
            self.run.refuse(name, "hello", reason)
            await self._respond(message, Welcome(accepted=False, reason=reason))
            return
        if hello.samples is not None:
            await self._heard_of(name, hello)
        live = self.core.live
        settings = self.run.config.model_dump(mode="json", exclude_none=True)
        settings["fleet"].pop("file", None)
        await self._respond(
            message,
            Welcome(accepted=True, config=settings, time_scale=live.time_scale, heartbeat_s=live.heartbeat_s),
        )

    def _unwelcome(self, name: str, hello: Hello) -> str | None:
        if not re.fullmatch(NAME, name):
            return "name: 1 to 64 letters, digits, - and _ are allowed"
        known = self.core.members.get(name)
        if known is not None and hello.samples is not None and hello.samples != known.joined.samples:
            return f"samples: {known.joined.samples} were announced before, now {hello.samples}"
        return None

    async def _heard_of(self, name: str, hello: Hello) -> None:
        if name not in self.core.members:
            if self.run.most_upload_bytes > self.client.max_payload - MESSAGE_SLACK_BYTES:
                await make_bucket(self.js, self._subjects.uploads_bucket(name), 4 * self.run.most_upload_bytes)
            if name not in self.core.members:
                self._happen(self.core.join(name, hello, self.run.now_s()))
                say(logging.INFO, "joined", device=name, samples=hello.samples, devices=len(self.core.members))
        device = self.core.number_of(name)
        task = self.core.task_of(device) if device is not None else None
        if hello.fresh and task is not None:
            self._happen(self.core.give_up(task, self.run.now_s(), "the device was started anew", "offline"))
        self._alive(name)
        if self.core.ready():
            self._happen(self.core.start(self.run.now_s()))
            say(logging.INFO, "started", devices=len(self.core.names), channels=self.core.channels)
        self._wake.set()

    async def _on_beat(self, message: Msg) -> None:
        name = message.subject.rpartition(".")[2]
        try:
            telemetry = Telemetry.model_validate_json(message.data)
        except ValidationError as error:
            self.run.refuse(name, "telemetry", misfit(error))
            return
        device = self.core.number_of(name)
        compute = self.run.config.compute
        if telemetry.cpu_hz is not None and not compute.cpu_hz_floor <= telemetry.cpu_hz <= 10.0 * compute.cpu_hz_max:
            self.run.refuse(name, "telemetry", f"range: cpu_hz = {telemetry.cpu_hz:g}")
            return
        if device is None:
            say(logging.DEBUG, "telemetry of a device that has not joined", device=name)
            return
        self.core.coordinator.tell(device, telemetry.gain, telemetry.cpu_hz, self.run.now_s())
        if not telemetry.busy:
            self._alive(name)
        else:
            self._heard[name] = time.monotonic()

    def _alive(self, name: str) -> None:
        self._heard[name] = time.monotonic()
        device = self.core.number_of(name)
        if device is not None and self.core.twin.devices[device].status == "offline":
            self._happen(events.StatusChanged(at_s=self.run.now_s(), device=device, status="idle"))
            self._wake.set()

    async def _respond(self, message: Msg, answer: Welcome) -> None:
        """Only into the inbox of who said hello: the subject for the answer is of the sender's choosing."""
        if message.reply.startswith(f"_INBOX.{message.subject.rpartition('.')[2]}."):
            with suppress(nats.errors.Error):
                await message.respond(answer.encoded())

    # Rounds

    async def _ask_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while not self._stopping.is_set() and self.client.is_connected:
                asked = self.core.next_ask(self.run.now_s())
                if asked is None:
                    break
                self._happen(asked)
                if isinstance(asked, events.Passed):
                    self._tried_at = time.monotonic()
                    say(logging.DEBUG, "passed", round=asked.round)
                    continue
                await self._ask(asked)

    async def _ask(self, asked: events.Asked) -> None:
        name = self.core.names[asked.device]
        try:
            reply = await self.client.request(
                self._subjects.ask(name), Ask(round=asked.round).encoded(), timeout=self.core.live.ask_timeout_s
            )
            answer = ANSWER.validate_json(reply.data)
        except nats.errors.NoRespondersError:
            self._happen(self.core.unanswered(asked, self.run.now_s(), "not connected"))
            return
        except (nats.errors.Error, TimeoutError):
            self._happen(self.core.unanswered(asked, self.run.now_s(), "no answer"))
            return
        except ValidationError as error:
            self.run.refuse(name, "answer", misfit(error))
            answer = Decline(reason=f"refused: {misfit(error)}")
        event = self.core.answered(asked, answer, new_token(), self.run.now_s())
        if isinstance(event, events.Declined) and self.core.is_quarantined(name):
            event = self.core.unanswered(asked, self.run.now_s(), "quarantined")
        self._happen(event)
        if isinstance(event, events.Dispatched):
            await self._send(name, event)
        else:
            say(logging.DEBUG, "declined", device=name, round=asked.round, reason=event.reason)

    async def _send(self, name: str, sent: events.Dispatched) -> None:
        model = self.run.model.encoded
        task = Task(token=sent.token, round=sent.round, version=sent.version, model_bytes=len(model))
        try:
            if self._needs_objects:
                await self._put_model(sent.version, model)
                task = task.model_copy(update={"object_name": self._objects[sent.version]})
                await self.client.publish(self._subjects.task(name), task.encoded() + b"\n")
            else:
                await self.client.publish(self._subjects.task(name), b"".join(with_body(task, model)))
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            say(logging.WARNING, "a task could not be sent", device=name, reason=str(error))
        say(logging.DEBUG, "dispatched", device=name, round=sent.round, version=sent.version)

    async def _put_model(self, version: int, model: bytes) -> None:
        if version in self._objects:
            return
        name = f"model-{version}"
        await put_object(self.js, self._subjects.models_bucket, name, model)
        self._objects[version] = name
        needed = {version, *(task.sent.version for task in self.core.open.values())}
        for old in [old for old in self._objects if old not in needed]:
            await delete_object(self.js, self._subjects.models_bucket, self._objects.pop(old))

    # Uploads

    async def _on_delivery(self, message: Msg) -> None:
        """Uploads and results, one after the other. Acknowledged when all that follows from them is on disk."""
        try:
            kind, name = message.subject.split(".")[2:4]
            if kind == "upload":
                await self._on_upload(name, message)
            else:
                await self._on_result(name, message)
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            say(logging.WARNING, "the broker did not hear an acknowledgement", reason=str(error) or type(error).__name__)
        except Exception as error:
            self._trouble = error
            raise

    async def _on_upload(self, name: str, message: Msg) -> None:
        token = (message.headers or {}).get(TOKEN_HEADER, "")
        reason = self.run.upload_is_expected(name, token, len(message.data))
        if reason is not None:
            if not reason.startswith("duplicate"):
                self.run.refuse(name, "upload", reason)
            if reason.startswith(("size", "foreign")):  # both only where the token is a task's
                self.run.quarantine(name, reason)
            await message.ack()
            return
        old = self._held.pop(token, None)
        if old is not None:
            await old.message.ack()
        self._held[token] = HeldUpload(message, message.data)

    async def _on_result(self, name: str, message: Msg) -> None:
        try:
            result = RESULT.validate_json(message.data)
        except ValidationError as error:
            self.run.refuse(name, "result", misfit(error))
            self.run.quarantine_if_its_own(name, message.data, misfit(error))
            await message.ack()
            return
        held = self._held.pop(result.token, None)
        if isinstance(result, Failed):
            self._failed(name, result)
        else:
            arrived_s = min(self.run.now_s(), self.run.clock_of(message.metadata.timestamp.timestamp()))
            body = await self._body(name, result, held)
            last = self.core.applied
            if self.run.receive(name, result, body, arrived_s) is None and self.core.applied > last:
                self._applied(name, result)
        if held is not None:
            await held.message.ack()
        await message.ack()
        device = self.core.number_of(name)
        if device is not None:
            self._heard[name] = time.monotonic()
        self._wake.set()

    async def _body(self, name: str, result: Done, held: HeldUpload | None) -> bytes | None:
        if result.object_name is None:
            return held.body if held is not None else None
        if result.object_name != result.token or self.core.open.get(result.token) is None:
            return None
        bucket = self._subjects.uploads_bucket(name)
        try:
            body = await get_object(self.js, bucket, result.token, self.run.most_upload_bytes)
        except ObjectError as error:
            say(logging.WARNING, "an object could not be had", device=name, reason=str(error))
            return None
        with suppress(nats.errors.Error, nats.js.errors.Error, TimeoutError):
            await delete_object(self.js, bucket, result.token)
        return body

    def _applied(self, name: str, result: Done) -> None:
        event = self.run.last_applied
        if event is not None:
            say(
                logging.INFO, "applied", device=name, version=event.version, staleness=event.staleness, cost=event.cost,
                train_loss=result.train_loss, late=event.late, believed=event.believed,
            )  # fmt: skip

    def _failed(self, name: str, result: Failed) -> None:
        task = self.core.open.get(result.token)
        if task is None or self.core.number_of(name) != task.sent.device:
            self.run.refuse(name, "result", "unassigned: no such task", result.token)
            return
        self._happen(self.core.give_up(task, self.run.now_s(), f"failed: {result.reason}", "idle"))
        say(logging.WARNING, "failed", device=name, reason=result.reason)

    # Time

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._look_after_the_broker()
            self._give_up_overdue()
            self._mark_the_silent()
            self._release()
            self._evaluations.tick()
            self.metrics.look(self.core, connected=self.client.is_connected)
            scale = self.core.live.time_scale
            if self.core.waits_for_nothing and time.monotonic() - self._tried_at > self.core.terms.max_time_s * scale:
                self.core.try_again()
                self._tried_at = time.monotonic()
            self._wake.set()

    def _look_after_the_broker(self) -> None:
        """Started again from this very thread: a broker of the demo's kind ends with the thread that started it."""
        broker = self._options.broker
        if broker is not None and not broker.alive() and not self._stopping.is_set():
            say(logging.WARNING, "the broker is gone and is started again")
            broker.restart()

    def _give_up_overdue(self) -> None:
        if not self.client.is_connected:
            return
        now_s = self.run.now_s()
        for task in self.core.overdue(now_s):
            self._happen(self.core.give_up(task, now_s, "the deadline has passed", "offline"))
            self._held.pop(task.sent.token, None)
            say(logging.WARNING, "given up", device=self.core.names[task.sent.device], round=task.sent.round)

    def _mark_the_silent(self) -> None:
        if not self.core.started or not self.client.is_connected:
            return
        now, limit_s = time.monotonic(), self.core.live.offline_after_s
        for device, (name, known) in enumerate(zip(self.core.names, self.core.twin.devices, strict=True)):
            if known.status == "idle" and now - self._heard.setdefault(name, now) > limit_s:
                self._happen(events.StatusChanged(at_s=self.run.now_s(), device=device, status="offline"))
                say(logging.WARNING, "silent", device=name)

    def _release(self) -> None:
        now_s = self.run.now_s()
        for name, member in self.core.members.items():
            if member.quarantined_until_s is not None and now_s > member.quarantined_until_s:
                self._happen(events.Released(at_s=now_s, name=name))
                say(logging.INFO, "released", device=name)

    async def _mirror_for_ever(self) -> None:
        while True:
            await asyncio.sleep(MIRROR_EVERY_S)
            if self._mirror is not None and self.client.is_connected:
                try:
                    await self._mirror.write(self.core)
                except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
                    say(logging.DEBUG, "the twin's mirror is behind", reason=str(error))
