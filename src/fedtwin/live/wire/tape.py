"""A tape at the broker: messages numbered from 1, to which only who knows the number of the last one can add the next."""

import asyncio
import base64
import json
from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple

import nats.errors
import nats.js.errors
from nats.aio.client import Client

API = "$JS.API"
ANSWER_S = 2.0
WRONG_LAST, NO_MESSAGE = (10071, 10164), 10037  # numbers of the broker's errors


class OvertakenError(Exception):
    """Somebody else has written meanwhile; nothing was added."""


class MissingTapeError(Exception):
    """The broker has no such tape."""


class Entry(NamedTuple):
    """One message of a tape."""

    number: int
    data: bytes
    headers: dict[str, str]


class Tape:
    """A stream with one subject. With ``newest_only`` the broker keeps no other message than the last."""

    def __init__(self, client: Client, name: str, subject: str, *, newest_only: bool = False, replicas: int = 1) -> None:
        self._client, self.name, self.subject = client, name, subject
        self._newest_only, self._replicas = newest_only, replicas

    async def make(self) -> None:
        """One that is there stays."""
        with suppress(MissingTapeError):
            await self._info()
            return
        most = {"max_msgs": 1, "discard": "old"} if self._newest_only else {"discard": "new", "deny_delete": True}
        config = {"name": self.name, "subjects": [self.subject], "num_replicas": self._replicas, "storage": "file", **most}
        await self._ask(f"{API}.STREAM.CREATE.{self.name}", {"retention": "limits", **config})

    async def append(self, data: bytes, *, after: int, headers: dict[str, str] | None = None) -> int:
        """The number of the message, which is on the broker's disk; ``OvertakenError`` where ``after`` was not the last."""
        expected = {"Nats-Expected-Last-Sequence": str(after), "Nats-Expected-Stream": self.name}
        try:
            answer = await self._client.request(self.subject, data, timeout=ANSWER_S, headers={**(headers or {}), **expected})
        except nats.errors.NoRespondersError:
            await self._info()  # gone for good, or a broker that is not ready yet?
            raise
        said: dict[str, Any] = checked(answer.data)
        return int(said["seq"])

    async def last(self) -> Entry:
        """Empty where the tape is, or where the last one was removed; its number counts all the same."""
        found = await self._get({"last_by_subj": self.subject})
        if found is not None:
            return found
        return Entry(int((await self._info())["state"]["last_seq"]), b"", {})

    async def read(self, after: int, most: int) -> list[Entry]:
        """What follows a number, in order, ``most`` at most; empty where nothing does."""
        answers = await asyncio.gather(*(self._get({"seq": after + 1 + k}) for k in range(most)))
        return list(takewhile(lambda entry: entry is not None, answers))  # type: ignore[arg-type]

    async def remove(self) -> None:
        """All of it; nothing where there is none."""
        with suppress(nats.js.errors.NotFoundError):
            await self._ask(f"{API}.STREAM.DELETE.{self.name}", {})

    async def _info(self) -> dict[str, Any]:
        try:
            return await self._ask(f"{API}.STREAM.INFO.{self.name}", {})
        except nats.js.errors.NotFoundError:
            raise MissingTapeError(self.name) from None

    async def _get(self, which: dict[str, Any]) -> Entry | None:
        try:
            said = await self._ask(f"{API}.STREAM.MSG.GET.{self.name}", which)
        except nats.js.errors.NotFoundError as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise MissingTapeError(self.name) from None
        return _entry(said["message"])

    async def _ask(self, subject: str, question: dict[str, Any]) -> dict[str, Any]:
        answer = await self._client.request(subject, json.dumps(question).encode(), timeout=ANSWER_S)
        return checked(answer.data)


def checked(data: bytes) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(data)
    if "error" in said:
        if said["error"].get("err_code") in WRONG_LAST:
            raise OvertakenError(said["error"].get("description", ""))
        raise nats.js.errors.APIError.from_error(said["error"]) from None
    return said


def _entry(message: dict[str, Any]) -> Entry:
    lines = base64.b64decode(message.get("hdrs") or "").decode().split("\r\n")[1:]
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    return Entry(int(message["seq"]), base64.b64decode(message.get("data") or ""), headers)
