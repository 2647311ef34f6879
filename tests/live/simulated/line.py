"""The client's side of a broker in memory: a connection that comes back by itself, and plain messages over it."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedtwin.live.wire.ports import Chance, Handler, NoAnswerError, TransportError
from tests.live.simulated.broker import Connection, MemoryBroker
from tests.live.simulated.loop import PROCESS, Process
from tests.live.simulated.store import Stored

LOG = logging.getLogger("fedtwin.live")
RECONNECT_S, CONNECT_S = (0.1, 0.3), 5.0
MOST_UNSENT_BYTES = 64 * 2**20


@dataclass
class MemoryMessage:
    transport: "Line"
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

    def __init__(self, transport: "Line", number: int, handler: Handler, *, subject: str = "", queue: str = "") -> None:
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


class Line:
    """A connection to a ``MemoryBroker`` that comes back by itself, and what is said and heard over it."""

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
