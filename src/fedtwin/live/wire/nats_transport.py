"""The transport by NATS and its JetStream. No body is copied here, and no task is made for a message."""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, KeyValueConfig, RetentionPolicy, StreamConfig
from nats.js.kv import KeyValue

from fedtwin.live.wire import nats_connection, nats_objects, nats_tapes
from fedtwin.live.wire.client import connect_anew
from fedtwin.live.wire.ports import (
    ANSWER_S,
    Entry,
    Handler,
    MissingError,
    NoAnswerError,
    NobodyThereError,
    OvertakenError,
    Queue,
    Roll,
    Shelf,
    TooManyWaitError,
    TransportError,
)

CONSUMER = "edge"
MOST_UNACKNOWLEDGED = 10_000
MESSAGE_ID = "Nats-Msg-Id"
NAMES = "$JS.API.STREAM.NAMES"
TOO_MANY_WAIT = 10077  # the broker's number for a subject that has all the messages it may have
WRONG_LAST = (10070, 10071, 10164)  # and for a last message that is another one than was expected
WATCHED = ("subjects", "discard", "discard_new_per_subject", "max_msgs_per_subject", "max_msg_size", "duplicate_window")
DUPLICATES_S = 2.0  # a message is repeated sooner, or its token tells; the broker keeps every id in memory for so long
MOST_UNREAD = 20_000
SUBSCRIBED_S = 1
NO_HEADERS: Mapping[str, str] = {}


class _Ours:
    """Within the block the library's errors become those of ``ports``, in the library's words."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, nats.errors.Error | OSError):
            _raise_ours(error)


OURS = _Ours()


def _raise_ours(error: Exception) -> NoReturn:
    words = str(error) or type(error).__name__
    if isinstance(error, nats.errors.NoRespondersError | nats.js.errors.NoStreamResponseError):
        raise NobodyThereError(words) from error
    if isinstance(error, TimeoutError):
        raise NoAnswerError(words) from error
    if isinstance(error, nats.js.errors.NotFoundError):
        raise MissingError(words) from error
    if isinstance(error, nats.js.errors.APIError) and error.err_code == TOO_MANY_WAIT:
        raise TooManyWaitError(words) from error
    if isinstance(error, nats.js.errors.APIError) and error.err_code in WRONG_LAST:
        raise OvertakenError(words) from error
    raise TransportError(words) from error


class NatsMessage:
    """A message of the library's."""

    __slots__ = ("_message", "data", "reply", "subject")

    def __init__(self, message: Msg) -> None:
        self._message = message
        self.subject, self.data, self.reply = message.subject, message.data, message.reply

    @property
    def headers(self) -> Mapping[str, str]:
        return self._message.headers or NO_HEADERS

    @property
    def stored_wall_s(self) -> float:
        with OURS:
            return self._message.metadata.timestamp.timestamp()

    async def respond(self, data: bytes) -> None:
        with OURS:
            await self._message.respond(data)

    async def ack(self) -> None:
        with OURS:
            await self._message.ack()


class NatsSubscription:
    """Of any kind the library has."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription

    async def unsubscribe(self) -> None:
        with suppress(nats.errors.Error):  # it is not any more, or the connection is not
            await self._subscription.unsubscribe()


def _for_the_library(handler: Handler) -> Callable[[Msg], Awaitable[None]]:
    async def heard(message: Msg) -> None:
        await handler(NatsMessage(message))

    return heard


class NatsTransport:
    """Around a client of the library that is connected."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._streams: dict[float, JetStreamContext] = {}
        self._tables: dict[str, KeyValue] = {}

    def _js(self, answer_s: float = ANSWER_S) -> JetStreamContext:
        if answer_s not in self._streams:
            self._streams[answer_s] = self.client.jetstream(timeout=answer_s)
        return self._streams[answer_s]

    @property
    def connected(self) -> bool:
        return self.client.is_connected

    @property
    def closed(self) -> bool:
        return self.client.is_closed

    @property
    def max_payload(self) -> int:
        return self.client.max_payload

    @property
    def reconnects(self) -> int:
        return self.client.stats["reconnects"]

    @property
    def sent_bytes(self) -> int:
        return self.client.stats["out_bytes"]

    @property
    def unsent_bytes(self) -> int:
        return self.client.pending_data_size

    def refused(self, subject: str) -> bool:
        last = str(self.client.last_error or "").lower()
        return "permissions violation" in last and subject.lower() in last

    async def publish(self, subject: str, data: bytes) -> None:
        with OURS:
            await self.client.publish(subject, data)

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        with OURS:
            return (await self.client.request(subject, data, timeout=timeout_s)).data

    async def subscribe(self, subject: str, handler: Handler) -> NatsSubscription:
        """The broker has heard of it when this returns, unless it is silent."""
        with OURS:
            heard = _for_the_library(handler)
            subscription = await self.client.subscribe(subject, cb=heard, pending_msgs_limit=MOST_UNREAD)
            with suppress(nats.errors.Error):
                await self.client.flush(SUBSCRIBED_S)
            return NatsSubscription(subscription)

    def connect_anew(self) -> None:
        connect_anew(self.client)

    async def flush(self, timeout_s: float) -> None:
        with OURS:
            await self.client.flush(timeout_s)  # type: ignore[arg-type]

    async def close(self) -> None:
        await nats_connection.close(self.client)

    # Queues

    async def store(
        self,
        subject: str,
        data: bytes,
        *,
        message_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        told = dict(headers or {})
        if message_id is not None:
            told[MESSAGE_ID] = message_id
        with OURS:
            await self._js().publish(subject, data, timeout=answer_s, headers=told or None)

    async def make_queue(self, queue: Queue) -> None:
        with OURS:
            await self._js().add_stream(_stream_of(queue))

    async def update_queue(self, queue: Queue) -> None:
        with OURS:
            await self._js().update_stream(_stream_of(queue))

    async def queue_is(self, wanted: Queue) -> bool:
        with OURS:
            found, config = (await self._js().stream_info(wanted.name)).config, _stream_of(wanted)
        return all(getattr(found, key) == getattr(config, key) for key in WATCHED)

    async def consume(self, queue: str, handler: Handler, *, redeliver_s: float) -> NatsSubscription:
        config = ConsumerConfig(
            durable_name=CONSUMER,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=redeliver_s,
            max_ack_pending=MOST_UNACKNOWLEDGED,
        )
        with OURS:
            subscription = await self._js().subscribe(
                "", stream=queue, durable=CONSUMER, config=config, cb=_for_the_library(handler), manual_ack=True
            )
        return NatsSubscription(subscription)

    async def consumes_all(self, queue: str) -> bool:
        with OURS:
            config = (await self._js().consumer_info(queue, CONSUMER)).config
        return not config.filter_subject and not config.filter_subjects

    async def delete_consumer(self, queue: str) -> None:
        with OURS, suppress(nats.js.errors.NotFoundError):
            await self._js().delete_consumer(queue, CONSUMER)

    async def waiting(self, queue: str) -> int:
        with OURS:
            found = await self._js().consumer_info(queue, CONSUMER)
        return (found.num_pending or 0) + (found.num_ack_pending or 0)

    # Tapes

    async def make_tape(self, tape: Roll, *, answer_s: float = ANSWER_S) -> None:
        with OURS:
            await nats_tapes.make(self.client, tape, answer_s)

    async def append(
        self,
        tape: Roll,
        data: bytes,
        *,
        after: int,
        name: str | None = None,
        follows: str | None = None,
        headers: Mapping[str, str] | None = None,
        answer_s: float = ANSWER_S,
    ) -> int:
        with OURS:
            expected = nats_tapes.expected(tape, after, name, follows)
            return await nats_tapes.append(self.client, tape, data, {**(headers or NO_HEADERS), **expected}, answer_s)

    async def last_of(self, tape: Roll, *, answer_s: float = ANSWER_S) -> Entry:
        with OURS:
            return await nats_tapes.last(self.client, tape, answer_s)

    async def entries(self, tape: Roll, after: int, most: int, *, answer_s: float = ANSWER_S) -> list[Entry]:
        with OURS:
            return await nats_tapes.entries(self.client, tape, after, most, answer_s)

    async def delete_tape(self, tape: Roll, *, answer_s: float = ANSWER_S) -> None:
        with OURS:
            await nats_tapes.delete(self.client, tape, answer_s)

    # Buckets of objects, and tables

    async def shelves(self, answer_s: float = ANSWER_S) -> set[Shelf]:
        names: set[str] = set()
        while True:
            question = json.dumps({"offset": len(names)}).encode()
            answer = json.loads(await self.request(NAMES, question, timeout_s=answer_s))
            if "error" in answer:
                with OURS:
                    raise nats.js.errors.APIError.from_error(answer["error"])
            page = answer.get("streams") or []
            names.update(page)
            if not page or len(names) >= answer["total"]:
                return set(map(_shelf, names))

    async def make_bucket(self, bucket: str, most_bytes: int, replicas: int = 1) -> None:
        with OURS:
            await nats_objects.make_bucket(self._js(), bucket, most_bytes, replicas)

    async def put_object(self, bucket: str, name: str, data: bytes, *, answer_s: float = ANSWER_S) -> None:
        with OURS:
            await nats_objects.put_object(self._js(answer_s), bucket, name, data)

    async def get_object(self, bucket: str, name: str, most_bytes: int, *, answer_s: float = ANSWER_S) -> bytes:
        with OURS:
            return await nats_objects.get_object(self._js(answer_s), bucket, name, most_bytes)

    async def delete_object(self, bucket: str, name: str) -> None:
        with OURS:
            await nats_objects.delete_object(self._js(), bucket, name)

    async def object_names(self, bucket: str) -> list[str]:
        with OURS:
            return await nats_objects.object_names(self.client, bucket, ANSWER_S)

    async def erase_object(self, bucket: str, name: str) -> None:
        with OURS:
            await nats_objects.erase_object(self._js(), bucket, name)

    async def make_table(self, table: str, history: int, replicas: int = 1) -> None:
        with OURS:
            try:
                self._tables[table] = await self._js().key_value(table)
            except (nats.js.errors.NotFoundError, nats.js.errors.BucketNotFoundError):
                config = KeyValueConfig(bucket=table, history=history, replicas=replicas)
                self._tables[table] = await self._js().create_key_value(config)

    async def put(self, table: str, key: str, data: bytes) -> None:
        with OURS:
            if table not in self._tables:
                self._tables[table] = await self._js().key_value(table)
            await self._tables[table].put(key, data)

    async def table(self, table: str, *, answer_s: float = ANSWER_S) -> dict[str, bytes]:
        with OURS:
            return await nats_tapes.table(self.client, table, answer_s)


def _shelf(stream: str) -> Shelf:
    if stream.startswith("KV_"):
        return Shelf("table", stream.removeprefix("KV_"))
    if stream.startswith("OBJ_"):
        return Shelf("bucket", stream.removeprefix("OBJ_"))
    return Shelf("queue", stream)


def _stream_of(queue: Queue) -> StreamConfig:
    return StreamConfig(
        name=queue.name,
        subjects=list(queue.subjects),
        retention=RetentionPolicy.WORK_QUEUE,
        num_replicas=queue.replicas,
        discard=DiscardPolicy.NEW,
        discard_new_per_subject=True,
        max_msgs_per_subject=queue.most_waiting,
        max_msg_size=queue.most_message_bytes,
        duplicate_window=DUPLICATES_S,
    )


async def connect(
    servers: list[str],
    *,
    name: str,
    credentials: Path | None,
    insecure: bool,
    on_reconnect: Callable[[], Awaitable[None]] | None = None,
    expected: Callable[[], bool] = lambda: False,
) -> NatsTransport:
    """Everybody's inbox has their name: nobody else may listen there."""
    client = await nats_connection.connect(
        servers,
        name=name,
        inbox=name,
        credentials=credentials,
        insecure=insecure,
        on_reconnect=on_reconnect,
        expected=expected,
    )
    return NatsTransport(client)
