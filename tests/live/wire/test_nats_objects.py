"""Objects whose description was written by a hostile device."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import nats.errors
import nats.js.errors
import pytest
from nats.js import JetStreamContext

from fedtwin.live.wire.nats_connection import close, connect
from fedtwin.live.wire.nats_objects import delete_object, get_object, make_bucket, put_object
from fedtwin.live.wire.ports import ObjectError
from tests.live.brokers import running

NAME, BUCKET, MOST_BYTES = "a" * 32, "from-a", 3 * 2**20
META = f"$O.{BUCKET}.M.{base64.urlsafe_b64encode(NAME.encode()).decode()}"


def description(body: bytes, **changes: object) -> bytes:
    digest = "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    whole = {"name": NAME, "bucket": BUCKET, "nuid": "n", "size": len(body), "chunks": 1, "digest": digest}
    return json.dumps({**whole, **changes}).encode()


FORGED = {
    "no-json": b"\xff\xfe",
    "no-object": b"[1]",
    "deep": b"[" * 100_000,
    "empty": b"{}",
    "infinite": description(b"x", size=float("inf")),
    "not-a-number": description(b"x", size=float("nan")),
    "negative": description(b"x", size=-1),
    "long-number": description(b"x").replace(b'"size": 1', b'"size": ' + b"9" * 5000),
    "too-large": description(b"x", size=MOST_BYTES + 1),
    "other-bytes": description(b"y"),
    "no-text": description(b"x", digest=[], nuid={}),
    "wildcard": description(b"y", nuid=">"),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker.url


@asynccontextmanager
async def empty_bucket(url: str) -> AsyncIterator[JetStreamContext]:
    client = await connect([url], name="edge", inbox="edge", credentials=None, insecure=False)
    try:
        js = client.jetstream()
        await make_bucket(js, BUCKET, 4 * MOST_BYTES)
        await js.purge_stream(f"OBJ_{BUCKET}")
        yield js
    finally:
        await close(client)


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_description_is_an_object_error_and_can_be_cleared_away(url: str, case: str) -> None:
    async def scene() -> None:
        async with empty_bucket(url) as js:
            await js.publish(f"$O.{BUCKET}.C.n", b"x")
            await js.publish(META, FORGED[case])
            with pytest.raises(ObjectError):
                await get_object(js, BUCKET, NAME, MOST_BYTES)
            with suppress(nats.errors.Error, nats.js.errors.Error, TimeoutError):  # as the edge server does
                await delete_object(js, BUCKET, NAME)

    asyncio.run(scene())


def test_an_object_in_crumbs_does_not_keep_the_edge_server_busy(url: str) -> None:
    async def scene() -> None:
        async with empty_bucket(url) as js:
            for _ in range(3000):
                await js._nc.publish(f"$O.{BUCKET}.C.n", b"x")
            await js.publish(META, description(b"x" * 3000))
            with pytest.raises(ObjectError, match="a part of the object has 1 bytes"):  # and so the first part was the last
                await get_object(js, BUCKET, NAME, MOST_BYTES)

    asyncio.run(scene())


@pytest.mark.parametrize("size", [0, 1, 512 * 1024, 512 * 1024 + 1, 2 * 2**20])
def test_an_honest_object_comes_whole(url: str, size: int) -> None:
    async def scene() -> None:
        async with empty_bucket(url) as js:
            body = bytes(range(256)) * (size // 256 + 1)
            await put_object(js, BUCKET, NAME, body[:size])
            assert await get_object(js, BUCKET, NAME, MOST_BYTES) == body[:size]

    asyncio.run(scene())


def test_the_edge_server_takes_no_more_than_it_said(url: str) -> None:
    async def scene() -> None:
        async with empty_bucket(url) as js:
            await put_object(js, BUCKET, NAME, b"x" * 101)
            with pytest.raises(ObjectError, match="size: the object has 101 bytes, 100 are allowed"):
                await get_object(js, BUCKET, NAME, 100)

    asyncio.run(scene())


def test_what_killed_devices_leave_behind_does_not_fill_a_bucket(url: str) -> None:
    """Neither do the marks of deleted objects: the oldest goes."""

    async def scene() -> None:
        async with empty_bucket(url) as js:
            for number in range(9):
                body = bytes([number]) * MOST_BYTES
                await put_object(js, BUCKET, f"{number:032x}", body)
                assert await get_object(js, BUCKET, f"{number:032x}", MOST_BYTES) == body

    asyncio.run(scene())
