"""Files at the broker, by name, in a NATS object store that forgets nothing by itself."""

import base64
import json
from contextlib import suppress
from typing import Any

import nats.js.errors
from nats.aio.client import Client

from fedtwin.live.wire.objects import get_object, make_bucket, put_object
from fedtwin.live.wire.tape import API, MissingTapeError, checked

ANSWER_S = 5.0
MOST_BYTES = 2**40


class Box:
    """``names`` are of whole files: the name is written last, and removed first."""

    def __init__(self, client: Client, bucket: str, replicas: int = 1) -> None:
        self._client, self._bucket, self._replicas = client, bucket, replicas
        self._js = client.jetstream(timeout=ANSWER_S)

    async def make(self) -> None:
        """One that is there stays."""
        await make_bucket(self._js, self._bucket, -1, self._replicas)

    async def require(self) -> None:
        """``MissingTapeError`` where the broker has it no more."""
        try:
            await self._ask(f"{API}.STREAM.INFO.OBJ_{self._bucket}", {})
        except nats.js.errors.NotFoundError:
            raise MissingTapeError(self._bucket) from None

    async def put(self, name: str, data: bytes) -> None:
        await put_object(self._js, self._bucket, name, data)

    async def get(self, name: str) -> bytes:
        """Or an ``ObjectError``."""
        return await get_object(self._js, self._bucket, name, MOST_BYTES)

    async def names(self) -> list[str]:
        subjects = f"$O.{self._bucket}.M."
        question = {"subjects_filter": f"{subjects}>"}
        said = await self._ask(f"{API}.STREAM.INFO.OBJ_{self._bucket}", question)
        coded = [subject.removeprefix(subjects) for subject in said["state"].get("subjects") or {}]
        return sorted(base64.urlsafe_b64decode(name).decode() for name in coded)

    async def remove(self, name: str) -> None:
        """Nothing of it stays, not even a mark; nothing where there is none."""
        subject = f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"
        with suppress(nats.js.errors.NotFoundError):
            found = await self._js.get_msg(f"OBJ_{self._bucket}", subject=subject)
            for one in (subject, f"$O.{self._bucket}.C.{json.loads(found.data or b'{}')['nuid']}"):
                await self._ask(f"{API}.STREAM.PURGE.OBJ_{self._bucket}", {"filter": one})

    async def _ask(self, subject: str, question: dict[str, Any]) -> dict[str, Any]:
        return checked((await self._client.request(subject, json.dumps(question).encode(), timeout=ANSWER_S)).data)
