"""The client's side of a broker in memory: a connection that comes back by itself."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedtwin.live.wire.ports import (
    ANSWER_S,
    Chance,
    Entry,
    Handler,
    NoAnswerError,
    Queue,
    Roll,
    Shelf,
    TransportError,
)
from tests.live.simulated.broker import Connection, MemoryBroker
from tests.live.simulated.loop import PROCESS, Process
from tests.live.simulated.store import Bucket, Stored, StoredTape

LOG = logging.getLogger("fedtwin.live")
RECONNECT_S, CONNECT_S = (0.1, 0.3), 5.0
MOST_UNSENT_BYTES = 64 * 2**20


@dataclass
class MemoryMessage:
    transport: "MemoryTransport"
    subject: str
    data: bytes
    reply: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    queue: str = ""
    stored: Stored | None = None

    @property
    def stored_wall_s(self) -> float:
        assert self.stored is not None
        return self.stored.wall_s

    async def respond(self, data: bytes) -> None:
        await self.transport.publish(self.reply, data)

    async def ack(self) -> None:
        assert self.stored is not None
        transport, queue, stored = self.transport, self.queue, self.stored
        transport.send(lambda connection: connection.broker.acknowledged(queue, stored), 0)


class MemorySubscription:
    """Its handler gets one message at a time, in their order."""

    def __init__(
        self, transport: "MemoryTransport", number: int, handler: Handler, *, subject: str = "", queue: str = ""
    ) -> None:
        self._transport, self.number, self._handler = transport, number, handler
        self.subject, self.queue = subject, queue
        self._waiting: deque[MemoryMessage] = deque()
        self._work: asyncio.Task[None] | None = None

    def came(self, message: MemoryMessage) -> None:
        self._waiting.append(message)
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._handle())

    async def _handle(self) -> None:
        while self._waiting:
            message = self._waiting.popleft()
            try:
                await self._handler(message)
            except Exception as error:
                LOG.warning("%s: %s: %s", self._transport.name, type(error).__name__, error)

    async def unsubscribe(self) -> None:
        if self._transport.subscriptions.pop(self.number, None) is not None and not self._transport.closed:
            self._transport.send(lambda connection: connection.broker.stop_listening(connection, self.number, self.subject), 0)
        self._waiting.clear()
        if self._work is not None and self._work is not asyncio.current_task():
            self._work.cancel()


class MemoryTransport:
    """As ``nats_transport.py`` has it, over a ``MemoryBroker``."""

    def __init__(
        self,
        broker: MemoryBroker,
        name: str,
        chance: Chance,
        on_reconnect: Callable[[], Awaitable[None]] | None,
        expected: Callable[[], bool],
        stored: dict[str, float],
    ) -> None:
        self.broker, self.name, self._stored = broker, name, stored
        process = PROCESS.get()
        self.context = (process or Process(name)).context
        self.inbox = broker.new_inbox(name)
        self._chance, self._on_reconnect, self._expected = chance, on_reconnect, expected
        self._connection: Connection | None = None
        self._unsent: deque[tuple[Callable[[Connection], None], int]] = deque()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._refusal = ""
        self.subscriptions: dict[int, MemorySubscription] = {}
        self.closed = False
        self.reconnects = self.sent_bytes = self.unsent_bytes = 0

    # The connection

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self.closed

    @property
    def max_payload(self) -> int:
        return self.broker.max_payload

    async def dial(self) -> bool:
        """Whether the broker has greeted us."""
        broker = self.broker
        if broker.refuses_connections(self.name):
            return False
        connection, greeted = Connection(broker, self), asyncio.get_running_loop().create_future()

        def arrived() -> None:
            broker.greet(connection)
            connection.down(lambda: None if greeted.done() else greeted.set_result(None))

        connection.up(arrived)
        try:
            await asyncio.wait_for(greeted, CONNECT_S)
        except TimeoutError:
            connection.alive = False
            broker.gone(connection)
            return False
        if not connection.alive or self.closed:
            return False
        self._connection = connection
        for number, subscription in self.subscriptions.items():
            self._listen(connection, number, subscription)
        unsent, self._unsent, self.unsent_bytes = self._unsent, deque(), 0
        for action, size in unsent:
            self.send(action, size)
        return True

    def _listen(self, connection: Connection, number: int, subscription: MemorySubscription) -> None:
        broker = connection.broker
        if subscription.queue:
            connection.up(lambda: broker.bind(connection, number, subscription.queue))
        else:
            connection.up(lambda: broker.listen(connection, number, subscription.subject))

    def lost(self, connection: Connection) -> None:
        if connection is self._connection:
            self._connection = None
            if not self.closed:
                level = logging.INFO if self._expected() else logging.WARNING
                LOG.log(level, "%s: the connection was lost.", self.name)
                asyncio.get_running_loop().create_task(self._come_back())

    async def _come_back(self) -> None:
        while not self.closed:
            await asyncio.sleep(self._chance.uniform(*RECONNECT_S))
            if await self.dial():
                self.reconnects += 1
                if self._on_reconnect is not None:
                    await self._on_reconnect()
                return

    async def close(self) -> None:
        self.closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.up(connection.cut)
        for subscription in list(self.subscriptions.values()):
            await subscription.unsubscribe()

    def connect_anew(self) -> None:
        if self._connection is not None:
            self._connection.cut()

    def vanish(self) -> None:
        """Its process is killed: the system closes the connection, and nothing more is sent."""
        self.closed = True
        if self._connection is not None:
            self._connection.cut()

    def send(self, action: Callable[[Connection], None], size: int) -> None:
        """Now, or when the connection is back."""
        if self.closed:
            raise TransportError("the connection is closed")
        connection = self._connection
        if connection is None:
            if self.unsent_bytes + size > MOST_UNSENT_BYTES:
                raise TransportError("outbound buffer limit exceeded")
            self._unsent.append((action, size))
            self.unsent_bytes += size
            return
        self.sent_bytes += size
        connection.up(lambda: action(connection))

    # What comes

    def hear(self, number: int, subject: str, data: bytes, reply: str) -> None:
        if number in self.subscriptions:
            self.subscriptions[number].came(MemoryMessage(self, subject, data, reply))

    def hear_stored(self, number: int, queue: str, stored: Stored) -> None:
        if number in self.subscriptions:
            message = MemoryMessage(self, stored.subject, stored.data, "", stored.headers, queue, stored)
            self.subscriptions[number].came(message)

    def hear_refusal(self, subject: str) -> None:
        self._refusal = subject

    def refused(self, subject: str) -> bool:
        return self._refusal == subject

    def answered(self, number: int, answer: Any) -> None:
        future = self._answers.pop(number, None)
        if future is not None and not future.done():
            future.set_result(answer)

    async def _answer(self, begin: Callable[[int], None], timeout_s: float) -> Any:
        number = next(self._numbers)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            begin(number)
            found = await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise NoAnswerError(f"no answer within {timeout_s:g} s") from None
        finally:
            self._answers.pop(number, None)
        if isinstance(found, Exception):
            raise found
        return found

    # Plain messages

    async def publish(self, subject: str, data: bytes) -> None:
        self._check_size(data)
        self.send(lambda connection: connection.broker.publish(connection, subject, data, ""), len(data))

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        self._check_size(data)

        def begin(number: int) -> None:
            reply = f"{self.inbox}.{number}"
            self.send(lambda connection: connection.broker.publish(connection, subject, data, reply), len(data))

        found: bytes = await self._answer(begin, timeout_s)
        return found

    def _check_size(self, data: bytes) -> None:
        if len(data) > self.max_payload:
            raise TransportError("maximum payload exceeded")

    async def subscribe(self, subject: str, handler: Handler) -> MemorySubscription:
        subscription = MemorySubscription(self, next(self._numbers), handler, subject=subject)
        self.subscriptions[subscription.number] = subscription
        self.send(lambda connection: connection.broker.listen(connection, subscription.number, subject), 0)
        return subscription

    async def flush(self, timeout_s: float) -> None:
        def begin(number: int) -> None:
            self.send(lambda connection: connection.down(lambda: self.answered(number, None)), 0)

        await self._answer(begin, timeout_s)

    # The store

    async def _call(
        self, subjects: list[str], action: Callable[[MemoryBroker, Connection], Any], answer_s: float = ANSWER_S, size: int = 0
    ) -> Any:
        """Asks the broker's store; ``subjects`` are those of NATS, for who may do what."""

        def begin(number: int) -> None:
            self.send(
                lambda connection: connection.broker.call(
                    connection,
                    subjects,
                    lambda: action(connection.broker, connection),
                    lambda found: self.answered(number, found),
                ),
                size,
            )

        return await self._answer(begin, answer_s)

    async def store(
        self,
        subject: str,
        data: bytes,
        *,
        message_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._check_size(data)
        given = dict(headers or {})

        def action(broker: MemoryBroker, connection: Connection) -> None:  # noqa: ARG001
            queue = broker.on_disk.queue_for(subject)
            broker.writable()
            queue.add(subject, data, message_id, given, asyncio.get_running_loop().time(), broker.clock.wall_s())
            broker.pump(queue.settings.name)

        await self._call([subject], action, answer_s, len(data))
        if message_id is not None:
            self._stored[message_id] = asyncio.get_running_loop().time()

    async def make_queue(self, queue: Queue) -> None:
        await self._call([f"$JS.API.STREAM.CREATE.{queue.name}"], lambda broker, _: broker.on_disk.make_queue(queue))

    async def update_queue(self, queue: Queue) -> None:
        await self._call([f"$JS.API.STREAM.UPDATE.{queue.name}"], lambda broker, _: broker.on_disk.update_queue(queue))

    async def queue_is(self, wanted: Queue) -> bool:
        found: bool = await self._call(
            [f"$JS.API.STREAM.INFO.{wanted.name}"], lambda broker, _: broker.on_disk.queue(wanted.name).settings == wanted
        )
        return found

    async def consume(self, queue: str, handler: Handler, *, redeliver_s: float) -> MemorySubscription:
        subscription = MemorySubscription(self, next(self._numbers), handler, queue=queue)
        self.subscriptions[subscription.number] = subscription
        try:
            await self._call(
                [f"$JS.API.CONSUMER.CREATE.{queue}"],
                lambda broker, connection: broker.consume(connection, subscription.number, queue, redeliver_s),
            )
        except TransportError:
            self.subscriptions.pop(subscription.number, None)
            raise
        return subscription

    async def consumes_all(self, queue: str) -> bool:
        found: bool = await self._call(
            [f"$JS.API.CONSUMER.INFO.{queue}"], lambda broker, _: broker.on_disk.consumer(queue).only is None
        )
        return found

    async def delete_consumer(self, queue: str) -> None:
        await self._call([f"$JS.API.CONSUMER.DELETE.{queue}"], lambda broker, _: broker.delete_consumer(queue))

    async def waiting(self, queue: str) -> int:
        found: int = await self._call(
            [f"$JS.API.CONSUMER.INFO.{queue}"], lambda broker, _: broker.on_disk.consumer(queue).waiting
        )
        return found

    async def make_tape(self, tape: Roll, *, answer_s: float = ANSWER_S) -> None:
        await self._call(
            [f"$JS.API.STREAM.CREATE.{tape.name}"],
            lambda broker, _: broker.on_disk.tapes.setdefault(tape.name, StoredTape(tape)),
            answer_s,
        )

    async def append(
        self,
        tape: Roll,
        data: bytes,
        *,
        after: int,
        headers: Mapping[str, str] | None = None,
        answer_s: float = ANSWER_S,
    ) -> int:
        self._check_size(data)
        given = dict(headers or {})

        def action(broker: MemoryBroker, connection: Connection) -> int:  # noqa: ARG001
            found = broker.on_disk.tape(tape.name)
            broker.writable()
            return found.append(data, after, given)

        number: int = await self._call([tape.subject], action, answer_s, len(data))
        return number

    async def last_of(self, tape: Roll, *, answer_s: float = ANSWER_S) -> Entry:
        found: Entry = await self._call(
            [f"$JS.API.STREAM.MSG.GET.{tape.name}"], lambda broker, _: broker.on_disk.tape(tape.name).last(), answer_s
        )
        return found

    async def entries(self, tape: Roll, after: int, most: int, *, answer_s: float = ANSWER_S) -> list[Entry]:
        found: list[Entry] = await self._call(
            [f"$JS.API.STREAM.MSG.GET.{tape.name}"],
            lambda broker, _: broker.on_disk.tape(tape.name).after(after, most),
            answer_s,
        )
        return found

    async def delete_tape(self, tape: Roll, *, answer_s: float = ANSWER_S) -> None:
        subject = f"$JS.API.STREAM.DELETE.{tape.name}"
        await self._call([subject], lambda broker, _: broker.on_disk.tapes.pop(tape.name, None), answer_s)

    async def shelves(self, answer_s: float = ANSWER_S) -> set[Shelf]:
        found: set[Shelf] = await self._call(["$JS.API.STREAM.NAMES"], lambda broker, _: broker.on_disk.shelves(), answer_s)
        return found

    async def make_bucket(self, bucket: str, most_bytes: int, replicas: int = 1) -> None:  # noqa: ARG002
        await self._call(
            [f"$JS.API.STREAM.CREATE.OBJ_{bucket}"],
            lambda broker, _: broker.on_disk.buckets.setdefault(bucket, Bucket(most_bytes)),
        )

    async def put_object(self, bucket: str, name: str, data: bytes, *, answer_s: float = ANSWER_S) -> None:
        def action(broker: MemoryBroker, connection: Connection) -> None:  # noqa: ARG001
            found = broker.on_disk.bucket(bucket)
            broker.writable()
            found.put(name, data)

        await self._call([f"$O.{bucket}.C.{name}", f"$O.{bucket}.M.{name}"], action, answer_s, len(data))

    async def get_object(self, bucket: str, name: str, most_bytes: int, *, answer_s: float = ANSWER_S) -> bytes:
        found: bytes = await self._call(
            [f"$JS.API.STREAM.MSG.GET.OBJ_{bucket}"],
            lambda broker, _: broker.on_disk.get_object(bucket, name, most_bytes),
            answer_s,
        )
        return found

    async def delete_object(self, bucket: str, name: str) -> None:
        await self._call([f"$O.{bucket}.M.{name}"], lambda broker, _: broker.on_disk.delete_object(bucket, name))

    async def object_names(self, bucket: str) -> list[str]:
        found: list[str] = await self._call(
            [f"$JS.API.STREAM.INFO.OBJ_{bucket}"], lambda broker, _: sorted(broker.on_disk.bucket(bucket).objects)
        )
        return found

    async def erase_object(self, bucket: str, name: str) -> None:
        subject = f"$JS.API.STREAM.PURGE.OBJ_{bucket}"
        await self._call([subject], lambda broker, _: broker.on_disk.bucket(bucket).objects.pop(name, None))

    async def make_table(self, table: str, history: int, replicas: int = 1) -> None:  # noqa: ARG002
        await self._call([f"$JS.API.STREAM.CREATE.KV_{table}"], lambda broker, _: broker.on_disk.make_table(table, history))

    async def put(self, table: str, key: str, data: bytes) -> None:
        def action(broker: MemoryBroker, connection: Connection) -> None:  # noqa: ARG001
            broker.writable()
            broker.on_disk.put(table, key, data)

        await self._call([f"$KV.{table}.{key}"], action)


def connector(
    broker: MemoryBroker, chance: Chance, stored: dict[str, float] | None = None
) -> Callable[..., Awaitable[MemoryTransport]]:
    """The ``connect`` of somebody's ports; ``stored`` gets the ids of messages, and when storing them was acknowledged."""
    acknowledged = {} if stored is None else stored

    async def connect(
        servers: list[str],
        *,
        name: str,
        credentials: Path | None,  # noqa: ARG001
        insecure: bool,  # noqa: ARG001
        on_reconnect: Callable[[], Awaitable[None]] | None = None,
        expected: Callable[[], bool] = lambda: False,
    ) -> MemoryTransport:
        transport, told = MemoryTransport(broker, name, chance, on_reconnect, expected, acknowledged), False
        while not await transport.dial():
            if not told:
                LOG.warning("server %s cannot be reached. Trying again until it works.", ", ".join(servers))
                told = True
            await asyncio.sleep(chance.uniform(*RECONNECT_S))
        return transport

    return connect
