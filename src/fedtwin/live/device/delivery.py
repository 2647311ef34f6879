"""How a device gets its bytes to the broker's disk: until it is acknowledged there, whatever happens in between."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from fedtwin.live.logs import say
from fedtwin.live.wire.ports import Ports, Transport
from fedtwin.live.wire.protocol import MESSAGE_SLACK_BYTES, TOKEN_HEADER, Done, Failed, Subjects
from fedtwin.live.wire.real import REAL
from fedtwin.live.wire.tasks import end_tasks
from fedtwin.live.wire.troubles import TROUBLES, words_of

PUBLISH_TIMEOUT_S = 5.0
RETRY_S = 0.5
GIVE_UP_S = 300.0
LOOK_S, LONGEST_S = 0.1, 3600.0
SLOW = "the link is too slow, or the broker hangs: an upload is not acknowledged"
MOVING_BYTES = 4096  # more than heartbeats


class DeliveryError(Exception):
    """Why something could not be delivered, in a few words."""


class Attempt(NamedTuple):
    """What the attempt that succeeded took, without those before it and the pauses between; whether the connection stood."""

    wall_s: float
    steady: bool


class Delivery:
    """Uploads and results of one device."""

    def __init__(self, transport: Transport, subjects: Subjects, name: str, ports: Ports = REAL) -> None:
        self._transport, self._subjects, self._name = transport, subjects, name
        self._clock, self._chance = ports.clock, ports.chance

    async def upload(self, token: str, body: bytes) -> tuple[str | None, Attempt]:
        """The bytes of an update; gives the name of their object where they are more than a message holds."""
        if len(body) > self._transport.max_payload - MESSAGE_SLACK_BYTES:
            bucket = self._subjects.uploads_bucket(self._name)
            put = partial(self._transport.put_object, bucket, token, body, answer_s=LONGEST_S)
            return token, await self._until_it_works(put)
        return None, await self._publish(self._subjects.upload(self._name), body, f"{token}-u", token)

    async def result(self, result: Done | Failed) -> None:
        await self._publish(self._subjects.result(self._name), result.encoded(), f"{result.token}-r", result.token)

    async def _publish(self, subject: str, data: bytes, message_id: str, token: str) -> Attempt:
        """The broker knows a repeated message by its id."""
        headers = {TOKEN_HEADER: token}
        store = partial(self._transport.store, subject, data, message_id=message_id, headers=headers, answer_s=LONGEST_S)
        return await self._until_it_works(store)

    async def _until_it_works(self, action: Callable[[], Coroutine[Any, Any, object]]) -> Attempt:
        deadline, told = self._clock.monotonic_s() + GIVE_UP_S, False
        while True:
            begun, reconnects = self._clock.monotonic_s(), self._transport.reconnects
            try:
                await self._as_long_as_bytes_move(action)
                return Attempt(self._clock.monotonic_s() - begun, self._transport.reconnects == reconnects)
            except (*TROUBLES, OSError) as error:
                reason = words_of(error)
                if self._transport.closed or self._clock.monotonic_s() > deadline:
                    raise DeliveryError(reason) from None
                say(logging.DEBUG if told else logging.WARNING, "trying again", device=self._name, reason=reason)
                told = True
                await asyncio.sleep(RETRY_S * self._chance.uniform(0.2, 1.0))

    async def _as_long_as_bytes_move(self, action: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """One attempt. No second copy is put behind the first while the broker has not read that, however slow the link is."""
        task, reconnects, told = asyncio.create_task(action()), self._transport.reconnects, False
        try:
            while not await _done(task, PUBLISH_TIMEOUT_S):
                if not told:
                    say(logging.WARNING, f"{SLOW} after {PUBLISH_TIMEOUT_S:g} s", device=self._name)
                    told = True
                sent = self._transport.sent_bytes
                if not await self._read_by_the_broker(task, reconnects):
                    raise ConnectionError("the connection broke")
                if not await _done(task, PUBLISH_TIMEOUT_S) and self._transport.sent_bytes - sent < MOVING_BYTES:
                    raise TimeoutError("no acknowledgement in time")
            await task
        finally:
            await end_tasks([task])

    async def _read_by_the_broker(self, task: asyncio.Task[object], reconnects: int) -> bool:
        """All that was written so far: its answer to a ping comes after that. False where the connection broke before."""
        transport = self._transport

        def stands() -> bool:
            return not transport.closed and transport.reconnects == reconnects

        while transport.unsent_bytes > 0 and stands() and not task.done():
            await asyncio.sleep(LOOK_S)
        answer = asyncio.create_task(transport.flush(LONGEST_S))
        try:
            while stands() and not task.done() and not await _done(answer, LOOK_S):
                pass
            return stands() or task.done()
        finally:
            await end_tasks([answer])


async def _done(task: asyncio.Task[Any], limit_s: float) -> bool:
    await asyncio.wait([task], timeout=limit_s)
    return task.done()
