"""A broker in memory: connections with their delays and faults, subjects, and a store. As NATS does, as far as we use it."""

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtwin.live.wire.ports import Clock, NobodyThereError, TransportError
from tests.live.simulated.loop import Process
from tests.live.simulated.store import Consumer, Store, Stored, matches

if TYPE_CHECKING:
    from tests.live.simulated.line import Line

MAX_PAYLOAD = 2**23
PLENTY_BYTES = 2**40
Rights = Callable[[str], dict[str, Any]]
Arrival = Callable[[], None]


@dataclass
class Weather:
    """How a message travels; the chances are of plain messages, which nobody acknowledges."""

    least_s: float = 0.0002
    most_s: float = 0.001
    lost: float = 0.0
    doubled: float = 0.0
    overtakes: float = 0.0


class Connection:
    """One TCP connection: what goes in comes out in its order, or is lost with the connection."""

    def __init__(self, broker: "MemoryBroker", transport: "Line") -> None:
        self.broker, self.transport = broker, transport
        self.alive = True
        self._up_at = self._down_at = 0.0
        self._held: list[tuple[Arrival, bool]] = []
        self._blocked = broker.is_cut_off(transport.name)
        self.may_answer: set[str] = set()

    def up(self, arrival: Arrival) -> None:
        """To the broker."""
        loop = asyncio.get_running_loop()
        self._up_at = max(self._up_at, loop.time() + self.broker.delay_s())
        loop.call_at(self._up_at, self._arrives, arrival, False, context=self.broker.process.context)

    def down(self, arrival: Arrival, *, overtakes: bool = False) -> None:
        """To the client."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + self.broker.delay_s()
        if not overtakes:
            at_s = self._down_at = max(self._down_at, at_s)
        loop.call_at(at_s, self._arrives, arrival, True, context=self.transport.context)

    def _arrives(self, arrival: Arrival, down: bool) -> None:
        if self._blocked:
            self._held.append((arrival, down))
        elif self.alive:
            arrival()

    def block(self) -> None:
        """Nothing comes through, and neither side is told."""
        self._blocked = True

    def unblock(self) -> None:
        loop, held = asyncio.get_running_loop(), self._held
        self._blocked, self._held = False, []
        for arrival, down in held:
            loop.call_soon(
                self._arrives, arrival, down, context=self.transport.context if down else self.broker.process.context
            )

    def cut(self) -> None:
        """Both sides are told."""
        if self.alive:
            self.alive = False
            self.broker.gone(self)
            asyncio.get_running_loop().call_soon(self.transport.lost, self, context=self.transport.context)


class MemoryBroker:
    """``alive`` is the process; ``jammed`` is why its store answers nobody, or refuses."""

    def __init__(
        self, chance: random.Random, clock: Clock, *, rights: Rights | None = None, max_payload: int = MAX_PAYLOAD
    ) -> None:
        self._chance, self.clock, self._rights = chance, clock, rights
        self.max_payload = max_payload
        self.weather = Weather()
        self.process = Process("broker")
        self.is_alive = True
        self.silent = self.full = False
        self.jammed = False
        self.on_disk = Store()
        self.connections: dict[Connection, None] = {}
        self.inboxes: dict[str, Connection] = {}
        self._exact: dict[str, dict[tuple[Connection, int], None]] = {}
        self._wild: dict[str, dict[tuple[Connection, int], None]] = {}
        self._consuming: dict[str, tuple[Connection, int]] = {}
        self._cut_off: dict[str, bool] = {}
        self._inbox_numbers = itertools.count(1)
        self.dealt_with: set[str] = set()
        self.objects_put = 0
        self.writers: dict[str, list[Line]] = {}

    # The network

    def delay_s(self) -> float:
        return self._chance.uniform(self.weather.least_s, self.weather.most_s)

    def is_cut_off(self, name: str) -> bool:
        return name in self._cut_off

    def partition(self, name: str, *, told: bool) -> None:
        """Where they are told, the connection breaks, and none is made; else nothing comes through."""
        self._cut_off[name] = told
        for connection in [one for one in self.connections if one.transport.name == name]:
            if told:
                connection.cut()
            else:
                connection.block()

    def heal(self, name: str) -> None:
        if not self._cut_off.pop(name, True):
            for connection in [one for one in self.connections if one.transport.name == name]:
                connection.unblock()

    def break_connections(self, name: str) -> None:
        for connection in [one for one in self.connections if one.transport.name == name]:
            connection.cut()

    def new_inbox(self, name: str) -> str:
        return f"_INBOX.{name}.{self._chance.getrandbits(64):016x}{next(self._inbox_numbers)}"

    def greet(self, connection: Connection) -> None:
        self.connections[connection] = None
        self.inboxes[connection.transport.inbox] = connection

    def refuses_connections(self, name: str) -> bool:
        return not self.is_alive or self._cut_off.get(name, False)

    def gone(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        if self.inboxes.get(connection.transport.inbox) is connection:
            del self.inboxes[connection.transport.inbox]
        for listening in (self._exact, self._wild):
            for subject in list(listening):
                for place in [place for place in listening[subject] if place[0] is connection]:
                    del listening[subject][place]
                if not listening[subject]:
                    del listening[subject]
        self._consuming = {queue: place for queue, place in self._consuming.items() if place[0] is not connection}

    # The process: what the edge server sees of a broker of its own

    @property
    def store(self) -> Path:
        return Path("broker/store")

    def alive(self) -> bool:
        return self.is_alive

    def answers(self) -> bool:
        return self.is_alive and not self.process.paused

    def room_bytes(self) -> int:
        return 0 if self.full else PLENTY_BYTES

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        """What it has stored stays."""
        self.is_alive = False
        for connection in list(self.connections):
            connection.cut()
        self.process.released()
        self.process.paused = False
        self.process = Process("broker")

    def restart(self) -> None:
        self.kill()
        self.is_alive, self.jammed, self.silent = True, False, False
        self.on_disk.restarted()

    # Subjects

    def may(self, connection: Connection, subject: str, *, publish: bool) -> bool:
        if self._rights is None:
            return True
        rights = self._rights(connection.transport.name)
        if publish and subject in connection.may_answer:
            connection.may_answer.discard(subject)
            return True
        if any(matches(pattern, subject) for pattern in rights["publish" if publish else "subscribe"]["allow"]):
            return True
        if publish:
            connection.down(lambda: connection.transport.hear_refusal(subject))
        return False

    def listen(self, connection: Connection, number: int, subject: str) -> None:
        if self.may(connection, subject, publish=False):
            listening = self._wild if "*" in subject or ">" in subject else self._exact
            listening.setdefault(subject, {})[connection, number] = None

    def stop_listening(self, connection: Connection, number: int, subject: str) -> None:
        for listening in (self._exact, self._wild):
            listening.get(subject, {}).pop((connection, number), None)
        self._consuming = {queue: place for queue, place in self._consuming.items() if place != (connection, number)}

    def publish(self, connection: Connection, subject: str, data: bytes, reply: str) -> None:
        """To whoever listens; who waits for an answer is told at once where nobody does."""
        if not self.may(connection, subject, publish=True):
            return
        if subject.startswith("_INBOX."):
            self._to_inbox(subject, data)
            return
        places = [*self._exact.get(subject, ())]
        places += [place for pattern, found in self._wild.items() if matches(pattern, subject) for place in found]
        if not places and reply:
            self._to_inbox(reply, NobodyThereError(f"nobody listens on {subject}"))
        weather, chance = self.weather, self._chance
        for receiver, number in places:
            if weather.lost and chance.random() < weather.lost:
                continue
            if reply and self._rights is not None:
                receiver.may_answer.add(reply)
            overtakes = bool(weather.overtakes) and chance.random() < weather.overtakes
            for _ in range(2 if weather.doubled and chance.random() < weather.doubled else 1):
                receiver.down(
                    lambda receiver=receiver, number=number: receiver.transport.hear(number, subject, data, reply),
                    overtakes=overtakes,
                )
        for queue in self.on_disk.queues.values():  # a plain message on a subject of a queue is stored too
            if queue.takes(subject) and not self.jammed and not self.silent and not self.full:
                try:
                    queue.add(subject, data, None, {}, self._now_s(), self.clock.wall_s())
                except TransportError:
                    continue
                self.pump(queue.settings.name)

    def _to_inbox(self, reply: str, answer: bytes | TransportError) -> None:
        inbox, _, number = reply.rpartition(".")
        connection = self.inboxes.get(inbox)
        if connection is not None and number.isdigit():
            if self.weather.lost and self._chance.random() < self.weather.lost:
                return
            connection.down(lambda: connection.transport.answered(int(number), answer))

    # The store

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def call(
        self, connection: Connection, subjects: list[str], action: Callable[[], Any], answer: Callable[[Any], None]
    ) -> None:
        """Does it and answers; or does not, where it may not, hangs, or has no room."""
        if not all(self.may(connection, subject, publish=True) for subject in subjects):
            return
        if self.silent:
            return
        try:
            found = action()
        except Exception as error:  # ObjectError is none of the transport's
            found = error
        connection.down(lambda: answer(found))

    def writable(self) -> None:
        """A broker that has met a full disk stores nothing until it is started again."""
        if self.full:
            self.jammed = True
        if self.jammed:
            raise TransportError("insufficient storage resources available")

    def consume(self, connection: Connection, number: int, queue: str, redeliver_s: float) -> None:
        stored = self.on_disk.queue(queue)
        if stored.consumer is None:
            stored.consumer = Consumer(stored.messages, redeliver_s)
        elif queue in self._consuming:
            raise TransportError("consumer is already bound to a subscription")
        stored.consumer.inbox = connection.transport, number
        self.bind(connection, number, queue)

    def bind(self, connection: Connection, number: int, queue: str) -> None:
        """Its messages go here, if it is there, and was made for this subscription."""
        stored = self.on_disk.queues.get(queue)
        if stored is not None and stored.consumer is not None and stored.consumer.inbox == (connection.transport, number):
            self._consuming[queue] = connection, number
            asyncio.get_running_loop().call_soon(self.pump, queue, context=self.process.context)

    def delete_consumer(self, queue: str) -> None:
        if queue in self.on_disk.queues:
            self.on_disk.queues[queue].consumer = None
        self._consuming.pop(queue, None)

    def delete_queue(self, queue: str) -> None:
        self.on_disk.queues.pop(queue, None)
        self._consuming.pop(queue, None)

    def empty(self) -> None:
        self.on_disk = Store()
        self._consuming = {}

    def pump(self, queue: str) -> None:
        """Gives the consumer what waits for it."""
        stored, place = self.on_disk.queues.get(queue), self._consuming.get(queue)
        if stored is None or stored.consumer is None or place is None or not self.is_alive or self.silent:
            return
        consumer, (connection, number) = stored.consumer, place
        loop = asyncio.get_running_loop()
        while (taken := consumer.take()) is not None:
            message, delivery = taken
            again = bool(self.weather.doubled) and self._chance.random() < self.weather.doubled
            for _ in range(2 if again else 1):
                connection.down(lambda message=message: connection.transport.hear_stored(number, queue, message))  # type: ignore[misc]
            loop.call_later(
                consumer.redeliver_s, self._overdue, queue, consumer, message.sequence, delivery, context=self.process.context
            )

    def _overdue(self, queue: str, consumer: Consumer, sequence: int, delivery: int) -> None:
        if consumer.overdue(sequence, delivery):
            self.pump(queue)

    def acknowledged(self, queue: str, message: Stored) -> None:
        """What goes by that is known here by its id, whichever message was meant."""
        if queue in self.on_disk.queues and not self.silent:
            gone = self.on_disk.queues[queue].acknowledged(message.sequence)
            if gone is not None and gone.message_id is not None:
                self.dealt_with.add(gone.message_id)

    def wrote(self, tape: str, transport: "Line") -> None:
        """Somebody has appended to a tape: kept, if it was somebody else before."""
        writers = self.writers.setdefault(tape, [])
        if not writers or writers[-1] is not transport:
            writers.append(transport)
