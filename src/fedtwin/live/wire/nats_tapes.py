"""Tapes in NATS: streams with one subject, appended to by the number that must be the last, read message by message.

A table is read the same way, by who may do nothing but read it.
"""

import asyncio
import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.js.errors import APIError, NotFoundError

from fedtwin.live.wire.ports import Entry, Roll

API = "$JS.API"
MOST_AT_ONCE = 256
NO_MESSAGE = 10037  # the broker's number for a message that is not there, in a stream that is


async def make(client: Client, tape: Roll, answer_s: float) -> None:
    with suppress(NotFoundError):
        await _info(client, tape, answer_s)
        return
    most = (
        {"max_msgs": 1, "discard": "old"} if tape.newest_only else {"discard": "new", "deny_delete": True, "deny_purge": True}
    )
    config = {"name": tape.name, "subjects": [tape.subject], "num_replicas": tape.replicas, "storage": "file", **most}
    await ask(client, f"STREAM.CREATE.{tape.name}", {"retention": "limits", **config}, answer_s)


def expected(tape: Roll, after: int, name: str | None, follows: str | None) -> dict[str, str]:
    """Headers by which the broker turns a message away that is not the next."""
    given = {"Nats-Msg-Id": name, "Nats-Expected-Last-Msg-Id": follows}
    number = {"Nats-Expected-Last-Sequence": str(after), "Nats-Expected-Stream": tape.name}
    return number | {key: value for key, value in given.items() if value is not None}


async def append(client: Client, tape: Roll, data: bytes, headers: Mapping[str, str], answer_s: float) -> int:
    try:
        answer = await client.request(tape.subject, data, timeout=answer_s, headers=dict(headers))
    except nats.errors.NoRespondersError:
        await _info(client, tape, answer_s)  # gone for good, or a broker that is not ready yet?
        raise
    return int(_checked(answer.data)["seq"])


async def last(client: Client, tape: Roll, answer_s: float) -> Entry:
    found = await _get(client, tape, {"last_by_subj": tape.subject}, answer_s)
    if found is not None:
        return found
    return Entry(int((await _info(client, tape, answer_s))["state"]["last_seq"]), b"", {})


async def entries(client: Client, tape: Roll, after: int, most: int, answer_s: float) -> list[Entry]:
    answers = await asyncio.gather(*(_get(client, tape, {"seq": after + 1 + k}, answer_s) for k in range(most)))
    return [entry for entry in takewhile(lambda entry: entry is not None, answers) if entry is not None]


async def delete(client: Client, tape: Roll, answer_s: float) -> None:
    with suppress(NotFoundError):
        await ask(client, f"STREAM.DELETE.{tape.name}", {}, answer_s)


async def table(client: Client, name: str, answer_s: float) -> dict[str, bytes]:
    """The last value of every key of a key-value bucket."""
    stream, root = f"KV_{name}", f"$KV.{name}."
    found: dict[str, bytes] = {}
    subjects: set[str] = set()
    while True:
        said = await ask(client, f"STREAM.INFO.{stream}", {"subjects_filter": ">", "offset": len(subjects)}, answer_s)
        page = (said["state"].get("subjects") or {}).keys() - subjects
        subjects |= page
        if not page or len(subjects) >= said.get("total", 0):
            break
    waiting = sorted(subjects)
    for begin in range(0, len(waiting), MOST_AT_ONCE):
        part = waiting[begin : begin + MOST_AT_ONCE]
        answers = await asyncio.gather(
            *(_get(client, Roll(stream, subject), {"last_by_subj": subject}, answer_s) for subject in part)
        )
        found |= {
            subject.removeprefix(root): entry.data for subject, entry in zip(part, answers, strict=True) if entry is not None
        }
    return found


async def ask(client: Client, what: str, question: Mapping[str, Any], answer_s: float) -> dict[str, Any]:
    """The broker's own words, or the error it says."""
    return _checked((await client.request(f"{API}.{what}", json.dumps(question).encode(), timeout=answer_s)).data)


async def _info(client: Client, tape: Roll, answer_s: float) -> dict[str, Any]:
    return await ask(client, f"STREAM.INFO.{tape.name}", {}, answer_s)


async def _get(client: Client, tape: Roll, which: Mapping[str, Any], answer_s: float) -> Entry | None:
    try:
        said = await ask(client, f"STREAM.MSG.GET.{tape.name}", which, answer_s)
    except NotFoundError as error:
        if error.err_code == NO_MESSAGE:
            return None
        raise
    return _entry(said["message"])


def _checked(data: bytes) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(data)
    if "error" in said:
        raise APIError.from_error(said["error"])
    return said


def _entry(message: Mapping[str, Any]) -> Entry:
    lines = base64.b64decode(message.get("hdrs") or "").decode().split("\r\n")[1:]
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    return Entry(int(message["seq"]), base64.b64decode(message.get("data") or ""), headers)
