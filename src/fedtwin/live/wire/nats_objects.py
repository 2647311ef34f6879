"""Models larger than a message, in NATS object stores.

Reading goes chunk by chunk, by single requests: a device needs no right to create consumers, whose messages it could have
delivered to somebody else.
"""

import base64
import hashlib
import json
from contextlib import suppress
from typing import Any

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, ObjectMeta, ObjectMetaOptions, StreamConfig
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from fedtwin.live.wire.nats_tapes import ask
from fedtwin.live.wire.ports import ObjectError

CHUNK_BYTES, LEAST_CHUNK_BYTES = 512 * 1024, 64 * 1024


async def make_bucket(js: JetStreamContext, bucket: str, max_bytes: int, replicas: int = 1) -> None:
    """A bucket with room for ``max_bytes``; one that is there stays.

    When it is full the oldest goes. What a killed process left there, and the marks of what was deleted, never fill it.
    """
    try:
        await js.object_store(bucket)
    except NotFoundError:
        stream = StreamConfig(
            name=f"OBJ_{bucket}",
            subjects=[f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
            max_bytes=max_bytes,
            num_replicas=replicas,
            discard=DiscardPolicy.OLD,
            allow_rollup_hdrs=True,
            allow_direct=True,
        )
        await js.add_stream(stream)


async def put_object(js: JetStreamContext, bucket: str, name: str, data: bytes) -> None:
    store = await js.object_store(bucket)
    chunk_bytes = min(CHUNK_BYTES, js._nc.max_payload // 2)  # a part is a message, and there are servers with small ones
    await store.put(name, data, meta=ObjectMeta(name=name, options=ObjectMetaOptions(max_chunk_size=chunk_bytes)))


async def delete_object(js: JetStreamContext, bucket: str, name: str) -> None:
    store = await js.object_store(bucket)
    await store.delete(name)


async def object_names(client: Client, bucket: str, answer_s: float) -> list[str]:
    subjects = f"$O.{bucket}.M."
    said = await ask(client, f"STREAM.INFO.OBJ_{bucket}", {"subjects_filter": f"{subjects}>"}, answer_s)
    coded = [subject.removeprefix(subjects) for subject in said["state"].get("subjects") or {}]
    return sorted(base64.urlsafe_b64decode(name).decode() for name in coded)


async def erase_object(js: JetStreamContext, bucket: str, name: str) -> None:
    """Its name first: what has a name is whole."""
    stream, subject = f"OBJ_{bucket}", f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"
    with suppress(NotFoundError):
        found = await js.get_msg(stream, subject=subject)
        for one in (subject, f"$O.{bucket}.C.{json.loads(found.data or b'{}')['nuid']}"):
            await js.purge_stream(stream, subject=one)


async def get_object(js: JetStreamContext, bucket: str, name: str, most_bytes: int) -> bytes:
    """The object, with its checksum checked; one that is missing, damaged, too large or in crumbs is an ``ObjectError``.

    Whatever the description says: a device has written it.
    """
    stream = f"OBJ_{bucket}"
    coded = base64.urlsafe_b64encode(name.encode()).decode()
    try:
        meta = await js.get_msg(stream, subject=f"$O.{bucket}.M.{coded}")
        info: dict[str, Any] = json.loads(meta.data or b"{}")
        size, subject, digest = int(info["size"]), f"$O.{bucket}.C.{info['nuid']}", str(info["digest"])
        if info.get("deleted") or size > most_bytes:
            raise ObjectError(f"size: the object has {size} bytes, {most_bytes} are allowed")
        least = min(LEAST_CHUNK_BYTES, js._nc.max_payload // 4)
        chunks, length, sequence = [], 0, 1
        while length < size:
            chunk = await js.get_msg(stream, seq=sequence, subject=subject, next=True)
            if chunk.data is None or chunk.seq is None or len(chunk.data) < min(least, size - length):
                raise ObjectError(f"missing: a part of the object has {len(chunk.data or b'')} bytes")
            chunks.append(chunk.data)
            length, sequence = length + len(chunk.data), chunk.seq + 1
    except ServiceUnavailableError:  # the broker, not the object
        raise
    except (APIError, KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ObjectError(f"missing: {type(error).__name__}: {error}"[:200]) from None
    data = b"".join(chunks)
    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
    if len(data) != size or digest.partition("=")[2] != found:
        raise ObjectError("damaged: the object's checksum is wrong")
    return data
