"""How a device gets its bytes to the broker's disk: until it is acknowledged there, whatever happens in between."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from fedtwin.live.logs import say
from fedtwin.live.objects import put_object
from fedtwin.live.protocol import MESSAGE_SLACK_BYTES, TOKEN_HEADER, Done, Failed, Subjects

PUBLISH_TIMEOUT_S = 5.0
RETRY_S = 0.5
GIVE_UP_S = 300.0


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
        self._js = client.jetstream()

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
        return await self._until_it_works(
            lambda: self._js.publish(subject, data, timeout=PUBLISH_TIMEOUT_S, headers=dict(headers))
        )

    async def _until_it_works(self, action: Callable[[], Awaitable[object]]) -> Attempt:
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            begun, reconnects = time.perf_counter(), self._client.stats["reconnects"]
            try:
                await action()
                return Attempt(time.perf_counter() - begun, self._client.stats["reconnects"] == reconnects)
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError) as error:
                reason = str(error) or type(error).__name__
                if self._client.is_closed or time.monotonic() > deadline:
                    raise DeliveryError(reason) from None
                say(logging.DEBUG, "trying again", device=self._name, reason=reason)
                await asyncio.sleep(RETRY_S * random.uniform(0.2, 1.0))
