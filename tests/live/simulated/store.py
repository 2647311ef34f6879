"""What a broker in memory keeps: queues with their consumers, tapes, tables, buckets: all we use of JetStream."""

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from fedtwin.live.wire.ports import (
    Entry,
    MissingError,
    NobodyThereError,
    ObjectError,
    OvertakenError,
    Queue,
    Roll,
    Shelf,
    TooManyWaitError,
    TransportError,
)

DUPLICATES_S = 120.0


@lru_cache(maxsize=100_000)
def matches(pattern: str, subject: str) -> bool:
    """``*`` is one word, ``>`` all that follow."""
    words, wanted = subject.split("."), pattern.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(words) <= len(wanted):
            return False
        words = words[: len(wanted)]
    return len(words) == len(wanted) and all(one in ("*", word) for one, word in zip(wanted, words, strict=True))


@dataclass
class Stored:
    sequence: int
    subject: str
    data: bytes
    headers: Mapping[str, str]
    message_id: str | None
    at_s: float
    wall_s: float


Deliver = Callable[[Stored], None]


class Consumer:
    """Gives what waits to its subscriber, in order; what was not acknowledged in time again."""

    def __init__(self, waiting: dict[int, Stored], redeliver_s: float) -> None:
        self._messages, self.redeliver_s = waiting, redeliver_s
        self._ready = list(waiting)
        heapq.heapify(self._ready)
        self.pending: dict[int, int] = {}
        self._deliveries = itertools.count()
        self.only: str | None = None
        self.delivers = True
        self.inbox: tuple[object, int] | None = None

    def came(self, message: Stored) -> None:
        heapq.heappush(self._ready, message.sequence)

    def take(self) -> tuple[Stored, int] | None:
        """The next message, with the number of this delivery."""
        while self.delivers and self._ready:
            message = self._messages.get(heapq.heappop(self._ready))
            if message is None or message.sequence in self.pending:
                continue
            if self.only is not None and not matches(self.only, message.subject):
                continue
            number = self.pending[message.sequence] = next(self._deliveries)
            return message, number
        return None

    def overdue(self, sequence: int, number: int) -> bool:
        """It comes again, if that delivery was not acknowledged."""
        if self.pending.get(sequence) != number:
            return False
        del self.pending[sequence]
        heapq.heappush(self._ready, sequence)
        return True

    @property
    def waiting(self) -> int:
        return len(self._messages)


@dataclass
class StoredQueue:
    settings: Queue
    messages: dict[int, Stored] = field(default_factory=dict)
    last: int = 0
    ids: dict[str, float] = field(default_factory=dict)
    per_subject: dict[str, int] = field(default_factory=dict)
    consumer: Consumer | None = None

    def takes(self, subject: str) -> bool:
        return any(matches(pattern, subject) for pattern in self.settings.subjects)

    def add(
        self, subject: str, data: bytes, message_id: str | None, headers: Mapping[str, str], at_s: float, wall_s: float
    ) -> None:
        if message_id is not None and at_s - self.ids.get(message_id, -DUPLICATES_S - 1.0) <= DUPLICATES_S:
            return
        if len(data) > self.settings.most_message_bytes:
            raise TransportError("message size exceeds maximum allowed")
        if self.per_subject.get(subject, 0) >= self.settings.most_waiting:
            raise TooManyWaitError("maximum messages per subject exceeded")
        if message_id is not None:
            self.ids[message_id] = at_s
        self.last += 1
        self.per_subject[subject] = self.per_subject.get(subject, 0) + 1
        message = self.messages[self.last] = Stored(self.last, subject, data, headers, message_id, at_s, wall_s)
        if self.consumer is not None:
            self.consumer.came(message)

    def acknowledged(self, sequence: int) -> Stored | None:
        """What is gone by that: only what was delivered; by its number, whoever means which message by that."""
        if self.consumer is None or self.consumer.pending.pop(sequence, None) is None:
            return None
        message = self.messages.pop(sequence)
        self.per_subject[message.subject] -= 1
        return message

    def restarted(self) -> None:
        """A broker that was killed knows the ids of what it still has, and does not know what it had delivered."""
        self.ids = {message.message_id: message.at_s for message in self.messages.values() if message.message_id is not None}
        if self.consumer is not None:
            before = self.consumer
            self.consumer = Consumer(self.messages, before.redeliver_s)
            self.consumer.only, self.consumer.inbox = before.only, before.inbox


@dataclass
class StoredTape:
    settings: Roll
    entries: dict[int, Entry] = field(default_factory=dict)
    number: int = 0
    last_name: str | None = None

    def append(self, data: bytes, after: int, headers: Mapping[str, str], name: str | None, follows: str | None) -> int:
        if follows is not None and follows != self.last_name:
            raise OvertakenError(f"wrong last msg ID: {self.last_name}")
        if after != self.number:
            raise OvertakenError(f"wrong last sequence: {self.number}")
        if self.settings.newest_only:
            self.entries.clear()
        self.number, self.last_name = self.number + 1, name
        self.entries[self.number] = Entry(self.number, data, headers)
        return self.number

    def last(self) -> Entry:
        return self.entries.get(self.number, Entry(self.number, b"", {}))

    def after(self, number: int, most: int) -> list[Entry]:
        wanted = (self.entries.get(number + 1 + k) for k in range(most))
        return [entry for entry in itertools.takewhile(lambda entry: entry is not None, wanted) if entry is not None]


@dataclass
class Bucket:
    most_bytes: int
    objects: dict[str, bytes] = field(default_factory=dict)

    def put(self, name: str, data: bytes) -> None:
        self.objects.pop(name, None)
        while self.most_bytes >= 0 and self.objects and sum(map(len, self.objects.values())) + len(data) > self.most_bytes:
            del self.objects[next(iter(self.objects))]
        self.objects[name] = data


class Store:
    """All of it, by name."""

    def __init__(self) -> None:
        self.queues: dict[str, StoredQueue] = {}
        self.tapes: dict[str, StoredTape] = {}
        self.tables: dict[str, dict[str, list[bytes]]] = {}
        self.histories: dict[str, int] = {}
        self.buckets: dict[str, Bucket] = {}

    def shelves(self) -> set[Shelf]:
        return (
            {Shelf("queue", name) for name in (*self.queues, *self.tapes)}
            | {Shelf("table", name) for name in self.tables}
            | {Shelf("bucket", name) for name in self.buckets}
        )

    def queue(self, name: str) -> StoredQueue:
        if name not in self.queues:
            raise MissingError("stream not found")
        return self.queues[name]

    def consumer(self, name: str) -> Consumer:
        found = self.queue(name).consumer
        if found is None:
            raise MissingError("consumer not found")
        return found

    def make_queue(self, queue: Queue) -> None:
        there = self.queues.get(queue.name)
        if there is None:
            self.queues[queue.name] = StoredQueue(queue)
        elif there.settings != queue:
            raise TransportError("stream name already in use with a different configuration")

    def update_queue(self, queue: Queue) -> None:
        self.queue(queue.name).settings = queue

    def queue_for(self, subject: str) -> StoredQueue:
        for queue in self.queues.values():
            if queue.takes(subject):
                return queue
        raise NobodyThereError("no queue takes it")

    def tape(self, name: str) -> StoredTape:
        if name not in self.tapes:
            raise MissingError("stream not found")
        return self.tapes[name]

    def bucket(self, name: str) -> Bucket:
        if name not in self.buckets:
            raise MissingError("bucket not found")
        return self.buckets[name]

    def get_object(self, bucket: str, name: str, most_bytes: int) -> bytes:
        data = self.buckets[bucket].objects.get(name) if bucket in self.buckets else None
        if data is None:
            raise ObjectError("missing: there is no such object")
        if len(data) > most_bytes:
            raise ObjectError(f"size: the object has {len(data)} bytes, {most_bytes} are allowed")
        return data

    def delete_object(self, bucket: str, name: str) -> None:
        if self.bucket(bucket).objects.pop(name, None) is None:
            raise MissingError("object not found")

    def make_table(self, table: str, history: int) -> None:
        self.tables.setdefault(table, {})
        self.histories.setdefault(table, history)

    def put(self, table: str, key: str, data: bytes) -> None:
        if table not in self.tables:
            raise NobodyThereError("no table of that name")
        values = self.tables[table].setdefault(key, [])
        values.append(data)
        del values[: -self.histories[table]]

    def last_values(self, table: str) -> dict[str, bytes]:
        if table not in self.tables:
            raise MissingError("no table of that name")
        return {key: values[-1] for key, values in self.tables[table].items()}

    def restarted(self) -> None:
        for queue in self.queues.values():
            queue.restarted()
