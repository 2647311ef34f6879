"""How a device gets its bytes to the broker's disk: until it is acknowledged there, whatever happens in between."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from fedtwin.live.logs import say
from fedtwin.live.wire.objects import put_object
from fedtwin.live.wire.protocol import MESSAGE_SLACK_BYTES, TOKEN_HEADER, Done, Failed, Subjects
from fedtwin.live.wire.transport import end_tasks

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

    def __init__(self, client: Client, subjects: Subjects, name: str) -> None:
        self._client, self._subjects, self._name = client, subjects, name
        self._js = client.jetstream(timeout=LONGEST_S)

    async def upload(self, token: str, body: bytes) -> tuple[str | None, Attempt]:
        """The bytes of an update; gives the name of their object where they are more than a message holds."""
        if len(body) > self._client.max_payload - MESSAGE_SLACK_BYTES:
            bucket = self._subjects.uploads_bucket(self._name)
            return token, await self._until_it_works(lambda: put_object(self._js, bucket, token, body))
        return None, await self._publish(self._subjects.upload(self._name), body, f"{token}-u", token)

    async def result(self, result: Done | Failed) -> None:
        await self._publish(self._subjects.result(self._name), result.encoded(), f"{result.token}-r", result.token)

    async def _publish(self, subject: str, data: bytes, message_id: str, token: str) -> Attempt:
        """The broker knows a repeated message by its id."""
        headers = {"Nats-Msg-Id": message_id, TOKEN_HEADER: token}
        return await self._until_it_works(lambda: self._js.publish(subject, data, timeout=LONGEST_S, headers=dict(headers)))

    async def _until_it_works(self, action: Callable[[], Coroutine[Any, Any, object]]) -> Attempt:
        deadline, told = time.monotonic() + GIVE_UP_S, False
        while True:
            begun, reconnects = time.perf_counter(), self._client.stats["reconnects"]
            try:
                await self._as_long_as_bytes_move(action)
                return Attempt(time.perf_counter() - begun, self._client.stats["reconnects"] == reconnects)
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError) as error:
                reason = str(error) or type(error).__name__
                if self._client.is_closed or time.monotonic() > deadline:
                    raise DeliveryError(reason) from None
                say(logging.DEBUG if told else logging.WARNING, "trying again", device=self._name, reason=reason)
                told = True
                await asyncio.sleep(RETRY_S * random.uniform(0.2, 1.0))

    async def _as_long_as_bytes_move(self, action: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """One attempt. No second copy is put behind the first while the broker has not read that, however slow the link is."""
        task, reconnects, told = asyncio.create_task(action()), self._client.stats["reconnects"], False
        try:
            while not await _done(task, PUBLISH_TIMEOUT_S):
                if not told:
                    say(logging.WARNING, f"{SLOW} after {PUBLISH_TIMEOUT_S:g} s", device=self._name)
                    told = True
                sent = self._client.stats["out_bytes"]
                if not await self._read_by_the_broker(task, reconnects):
                    raise ConnectionError("the connection broke")
                if not await _done(task, PUBLISH_TIMEOUT_S) and self._client.stats["out_bytes"] - sent < MOVING_BYTES:
                    raise TimeoutError("no acknowledgement in time")
            await task
        finally:
            await end_tasks([task])

    async def _read_by_the_broker(self, task: asyncio.Task[object], reconnects: int) -> bool:
        """All that was written so far: its answer to a ping comes after that. False where the connection broke before."""
        client = self._client

        def stands() -> bool:
            return not client.is_closed and client.stats["reconnects"] == reconnects

        while client.pending_data_size > 0 and stands() and not task.done():
            await asyncio.sleep(LOOK_S)
        answer = asyncio.create_task(client.flush(timeout=int(LONGEST_S)))
        try:
            while stands() and not task.done() and not await _done(answer, LOOK_S):
                pass
            return stands() or task.done()
        finally:
            await end_tasks([answer])


async def _done(task: asyncio.Task[Any], limit_s: float) -> bool:
    await asyncio.wait([task], timeout=limit_s)
    return task.done()
