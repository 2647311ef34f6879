"""How a device gets its bytes to the broker's disk: until it is acknowledged there, whatever happens in between."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

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


class Delivery:
    """Uploads and results of one device."""

    def __init__(self, client: Client, subjects: Subjects, name: str) -> None:
        self._client, self._subjects, self._name = client, subjects, name
        self._js = client.jetstream()

    async def upload(self, token: str, body: bytes) -> str | None:
        """The bytes of an update; the name of their object where they are more than a message holds."""
        if len(body) > self._client.max_payload - MESSAGE_SLACK_BYTES:
            bucket = self._subjects.uploads_bucket(self._name)
            await self._until_it_works(lambda: put_object(self._js, bucket, token, body))
            return token
        await self._publish(self._subjects.upload(self._name), body, f"{token}-u", token)
        return None

    async def result(self, result: Done | Failed) -> None:
        await self._publish(self._subjects.result(self._name), result.encoded(), f"{result.token}-r", result.token)

    async def _publish(self, subject: str, data: bytes, message_id: str, token: str) -> None:
        """The broker knows a repeated message by its id."""
        headers = {"Nats-Msg-Id": message_id, TOKEN_HEADER: token}
        await self._until_it_works(lambda: self._js.publish(subject, data, timeout=PUBLISH_TIMEOUT_S, headers=dict(headers)))

    async def _until_it_works(self, action: Callable[[], Awaitable[object]]) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            try:
                await action()
                return
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError) as error:
                reason = str(error) or type(error).__name__
                if self._client.is_closed or time.monotonic() > deadline:
                    raise DeliveryError(reason) from None
                say(logging.DEBUG, "trying again", device=self._name, reason=reason)
                await asyncio.sleep(RETRY_S * random.uniform(0.2, 1.0))
