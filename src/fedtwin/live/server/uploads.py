"""Uploads and their results, from the broker's stream, one after the other; acknowledged when all they lead to is on disk."""

import asyncio
import logging
import math
from contextlib import suppress
from dataclasses import dataclass

from pydantic import ValidationError

from fedtwin.live.logs import say
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.wire.ports import Incoming, MissingError, ObjectError, Queue, Subscription
from fedtwin.live.wire.protocol import MESSAGE_SLACK_BYTES, RESULT, TOKEN_HEADER, Done, Failed, misfit
from fedtwin.live.wire.troubles import TROUBLES, words_of

ACK_WAIT_S = 30.0
MOST_WAITING_PER_DEVICE = 4
LOOK_EVERY_S, LOOKS = 0.05, 60


@dataclass
class HeldUpload:
    """The bytes of an upload whose result has not come yet. They are acknowledged with it."""

    message: Incoming
    body: bytes
    stream: int


class Uploads:
    """The consumer of the uploads stream."""

    def __init__(self, context: EdgeContext) -> None:
        self._context, self._run, self._core = context, context.run, context.core
        self._transport = context.transport
        self._held: dict[str, HeldUpload] = {}
        self._subscription: Subscription | None = None
        self._one_at_a_time = asyncio.Lock()
        self._stream = 0
        self.trouble: BaseException | None = None
        self.delivered = 0
        self._busy_since: float | None = None
        self.pulse_sent_s = -math.inf
        self._is_over = False

    @property
    def busy(self) -> bool:
        """An upload is being looked at."""
        return self._busy_since is not None

    @property
    def busy_s(self) -> float:
        """For so long."""
        return 0.0 if self._busy_since is None else self._context.clock.monotonic_s() - self._busy_since

    async def open(self) -> None:
        try:
            await self._transport.update_queue(self._queue())
        except MissingError:
            await self.make_stream()
        await self.consume_anew()

    async def make_stream(self) -> None:
        """The broker does not have it, or not any more.

        Numbers begin anew in it. What was delivered from the stream before is not acknowledged from now on: it would strike an
        upload that nobody has seen.
        """
        async with self._one_at_a_time:
            await self._stop_listening()
            self._stream += 1
            await self._transport.make_queue(self._queue())

    async def set_right(self) -> list[str]:
        """What had other settings than ours, by somebody else's hand, and has them again."""
        wanted, changed = self._queue(), []
        if not await self._transport.queue_is(wanted):
            await self._transport.update_queue(wanted)
            changed.append("stream")
        with suppress(MissingError):  # the pulse will tell
            if not await self._transport.consumes_all(wanted.name):
                await self.consume_anew()
                changed.append("consumer")
        return changed

    def _queue(self) -> Queue:
        """A device that floods is stopped by the broker after a few messages."""
        subjects = self._context.subjects
        return Queue(
            subjects.stream,
            (subjects.upload("*"), subjects.result("*"), subjects.pulse),
            most_waiting=MOST_WAITING_PER_DEVICE,
            most_message_bytes=min(self._run.model.most_upload_bytes + MESSAGE_SLACK_BYTES, self._transport.max_payload),
            replicas=self._core.live.replicas,
        )

    async def _stop_listening(self) -> None:
        if self._subscription is not None:
            await self._subscription.unsubscribe()
            self._subscription = None

    async def consume_anew(self) -> None:
        """A new consumer: whatever was delivered and not acknowledged before comes again at once.

        Bytes from a stream that is gone do not: they are kept.
        """
        transport, stream = self._transport, self._context.subjects.stream
        async with self._one_at_a_time:
            await transport.delete_consumer(stream)
            await self._stop_listening()
            self._held = {token: held for token, held in self._held.items() if held.stream != self._stream}
            self._subscription = await transport.consume(stream, self._on_delivery, redeliver_s=ACK_WAIT_S)

    async def until_empty(self) -> None:
        """Uploads of tasks that had been given up may still wait at the broker."""
        for _ in range(LOOKS):
            with suppress(*TROUBLES):
                if not await self._transport.waiting(self._context.subjects.stream):
                    return
            await asyncio.sleep(LOOK_EVERY_S)

    async def take_no_more(self) -> None:
        """The model is final: what comes from now on came after the end, and stays at the broker."""
        self._is_over = True
        while self.busy:
            await asyncio.sleep(LOOK_EVERY_S)

    def forget(self, token: str) -> None:
        """The upload of a task that was given up, and that nobody wants."""
        self._held.pop(token, None)

    async def _on_delivery(self, message: Incoming) -> None:
        if not message.subject.startswith(self._context.subjects.call.removesuffix("call")):
            say(logging.WARNING, "the broker's words were directed into an inbox", subject=message.subject)
            return
        self.delivered, self._busy_since = self.delivered + 1, self._context.clock.monotonic_s()
        try:
            await self._context.settled()
            await self._handle(message, self._stream)
        except TROUBLES as error:
            say(logging.WARNING, "the broker did not hear an acknowledgement", reason=words_of(error))
        except Exception as error:
            self.trouble = error
            raise
        finally:
            self._busy_since = None

    async def _handle(self, message: Incoming, stream: int) -> None:
        if message.subject == self._context.subjects.pulse:
            with suppress(ValueError):
                self.pulse_sent_s = max(self.pulse_sent_s, float(message.data))
            await self._ack(message, stream)
            return
        if self._is_over:
            return
        kind, name = message.subject.split(".")[2:4]
        if kind == "upload":
            await self._on_upload(name, message, stream)
        else:
            await self._on_result(name, message, stream)

    async def _ack(self, message: Incoming, stream: int) -> None:
        await self._context.settled()
        if stream == self._stream:
            await message.ack()

    async def _on_upload(self, name: str, message: Incoming, stream: int) -> None:
        token = message.headers.get(TOKEN_HEADER, "")
        if self._run.receive_bytes(name, token, len(message.data)):
            before = [old for old, held in self._held.items() if held.message.subject == message.subject]
            forgotten = [self._held.pop(old) for old in before if old != token]  # the same again: it is not on disk yet
            self._held[token] = HeldUpload(message, message.data, stream)
            for held in forgotten:  # one for each device, or results that never come would fill the memory
                await self._ack(held.message, held.stream)
            return
        await self._ack(message, stream)

    async def _on_result(self, name: str, message: Incoming, stream: int) -> None:
        try:
            result = RESULT.validate_json(message.data)
        except ValidationError as error:
            self._run.receive_unreadable(name, message.data, misfit(error))
            await self._ack(message, stream)
            return
        held, body = self._held.pop(result.token, None), None
        if isinstance(result, Failed):
            self._run.receive_failure(name, result)
        else:
            body = await self._body(name, result, held)
            self._run.receive(name, result, body, self._run.arrival_s(message.stored_wall_s))
        self._context.wake.set()
        if held is not None:
            await self._ack(held.message, held.stream)
        await self._ack(message, stream)
        if name in self._core.members:
            self._context.heard[name] = self._context.clock.monotonic_s()
        if held is None and body is not None:  # an object, which was all there was of the upload until it was on our disk
            with suppress(*TROUBLES):
                await self._transport.delete_object(self._context.subjects.uploads_bucket(name), result.token)

    async def _body(self, name: str, result: Done, held: HeldUpload | None) -> bytes | None:
        if result.object_name is None:
            return held.body if held is not None else None
        if result.object_name != result.token or self._run.expects(name, result.token, result.model_bytes) is not None:
            return None
        bucket = self._context.subjects.uploads_bucket(name)
        try:
            return await self._transport.get_object(bucket, result.token, self._run.model.most_upload_bytes)
        except ObjectError as error:
            say(logging.WARNING, "an object could not be had", device=name, reason=str(error))
            return None
