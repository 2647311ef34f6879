"""What edge server, devices and runs need of the world outside, in our own terms: a broker, a clock, chance, threads, a disk.

``real.py`` has what is used outside of tests, ``nats_transport.py`` the transport. Under virtual time others take their place:
whatever is done through these ports can be done again from one seed. ``asyncio.sleep`` and the loop's own time belong to the
event loop.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
ANSWER_S = 5.0  # what an answer of the broker may take, where nobody says otherwise


# What goes wrong. A transport raises nothing else.


class TransportError(Exception):
    """The broker did not do what it was asked, or could not be asked; never without words."""


class NobodyThereError(TransportError):
    """The broker says at once that nobody listens on the subject; of a store, that no queue takes it."""


class NoAnswerError(TransportError, TimeoutError):
    """Nobody has answered in time; it may have been done all the same."""


class TooManyWaitError(TransportError):
    """The queue has as many messages of this subject as it may have; the message is not stored."""


class MissingError(TransportError):
    """The broker has no queue, consumer, tape or bucket of that name."""


class OvertakenError(TransportError):
    """Somebody else has written to the tape meanwhile; nothing was added."""


class ObjectError(Exception):
    """Why an object cannot be had, in a few words: missing, damaged or too large. The broker has answered."""


# Messages


class Incoming(Protocol):
    """A message that has come. ``reply``: the subject its answer is for, of the sender's choosing; empty where none is.

    ``stored_wall_s`` and ``ack`` are for a message that was consumed from a queue: of any other there is a ``TransportError``
    instead of a time, and to acknowledge it leads nowhere.
    """

    @property
    def subject(self) -> str: ...

    @property
    def data(self) -> bytes: ...

    @property
    def reply(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def stored_wall_s(self) -> float:
        """When the broker stored it, by the broker's clock."""
        ...

    async def respond(self, data: bytes) -> None: ...

    async def ack(self) -> None:
        """It has been dealt with: the queue forgets it.

        It is on its way to the broker when this returns; lost on the way, the message comes again.
        """
        ...


Handler = Callable[[Incoming], Awaitable[None]]
"""Called for one message of a subscription at a time, in their order. What it raises is logged, and the next one comes."""


class Subscription(Protocol):
    async def unsubscribe(self) -> None:
        """No message comes any more; doing it again is allowed."""
        ...


# What the broker keeps


@dataclass(frozen=True)
class Queue:
    """Messages wait in it until they are acknowledged. What would be too much is refused, and nothing old is thrown away.

    ``subjects`` may have ``*`` for one word. ``most_waiting`` is for each subject.
    """

    name: str
    subjects: tuple[str, ...]
    most_waiting: int
    most_message_bytes: int
    replicas: int = 1


@dataclass(frozen=True)
class Roll:
    """A tape at the broker: messages numbered from 1, to which only who knows the number of the last one can add the next.

    With ``newest_only`` the broker keeps no other message than the last.
    """

    name: str
    subject: str
    newest_only: bool = False
    replicas: int = 1


class Entry(NamedTuple):
    """One message of a tape."""

    number: int
    data: bytes
    headers: Mapping[str, str]


class Shelf(NamedTuple):
    """A place at the broker where something is kept, by its kind and name. A tape counts as a queue."""

    kind: Literal["queue", "table", "bucket"]
    name: str


class Transport(Protocol):
    """A connection to a broker, which comes back by itself until it is closed.

    What is sent while it is down is sent when it is up again, as far as there is room (``unsent_bytes``). Wherever the broker
    is asked, ``answer_s`` is how long each of its answers may take; more than that is a ``NoAnswerError``.
    """

    @property
    def connected(self) -> bool: ...

    @property
    def closed(self) -> bool:
        """For good, by us or by the broker."""
        ...

    @property
    def max_payload(self) -> int:
        """The most bytes of a message, headers included, as the broker says."""
        ...

    @property
    def reconnects(self) -> int:
        """How often the connection has come back."""
        ...

    @property
    def sent_bytes(self) -> int:
        """All that was handed to the system so far."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """What waits here to be handed to the system."""
        ...

    def refused(self, subject: str) -> bool:
        """Whether the last trouble was that we may not speak on this subject: the broker drops such a message, and says so
        later.
        """
        ...

    async def publish(self, subject: str, data: bytes) -> None:
        """To whoever listens right now, at most once."""
        ...

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        """The first answer. ``NobodyThereError`` at once where nobody listens, ``NoAnswerError`` after ``timeout_s``."""
        ...

    async def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """``subject`` may have ``*`` for one word. It is in force again after a reconnect. Of very many messages that nobody
        has read yet, the newest are lost.
        """
        ...

    def connect_anew(self) -> None:
        """The connection ends here, with all that waits at the broker for it, and comes back by itself."""
        ...

    async def flush(self, timeout_s: float) -> None:
        """The broker has read all that was sent so far."""
        ...

    async def close(self) -> None:
        """Within a moment, whatever state it is in; closing it again does nothing."""
        ...

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
        """The message is in the queue that takes the subject, acknowledged by the broker.

        One whose ``message_id`` the broker has seen within two minutes is acknowledged, and not stored again.
        ``NobodyThereError`` where no queue takes it, ``TooManyWaitError`` where that has enough.
        """
        ...

    async def make_queue(self, queue: Queue) -> None: ...

    async def update_queue(self, queue: Queue) -> None:
        """It has these settings now, and what it had in it. ``MissingError`` where there is none of that name."""
        ...

    async def queue_is(self, wanted: Queue) -> bool:
        """Whether it has these settings still, after somebody else's hand. ``MissingError`` where there is none."""
        ...

    async def consume(self, queue: str, handler: Handler, *, redeliver_s: float) -> Subscription:
        """Makes the queue's only consumer, which gets its messages in their order; what was not acknowledged within
        ``redeliver_s`` comes again. The consumer outlives the subscription and us.
        """
        ...

    async def consumes_all(self, queue: str) -> bool:
        """Whether its consumer gets every message still. ``MissingError`` where there is none."""
        ...

    async def delete_consumer(self, queue: str) -> None:
        """What was delivered and not acknowledged comes to the next one at once. Nothing is done where there is none."""
        ...

    async def waiting(self, queue: str) -> int:
        """How many messages were not delivered, or not acknowledged yet."""
        ...

    # Tapes. Wherever one is named, ``MissingError`` where there is none of that name.

    async def make_tape(self, tape: Roll, *, answer_s: float = ANSWER_S) -> None:
        """One that is there stays."""
        ...

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
        """The number of the message, which is on the broker's disk; ``OvertakenError`` where ``after`` was not the last.

        Who sends several without waiting must say which message each ``follows``, by its ``name``: when one of them is turned
        away because of another writer, that one's message has the very number that the next expects.
        """
        ...

    async def last_of(self, tape: Roll, *, answer_s: float = ANSWER_S) -> Entry:
        """Empty where the tape is, or where the last message was removed; its number counts all the same."""
        ...

    async def entries(self, tape: Roll, after: int, most: int, *, answer_s: float = ANSWER_S) -> list[Entry]:
        """What follows a number, in order, ``most`` at most; empty where nothing does."""
        ...

    async def delete_tape(self, tape: Roll, *, answer_s: float = ANSWER_S) -> None:
        """All of it; nothing where there is none."""
        ...

    # Buckets of objects, and tables

    async def shelves(self, answer_s: float = ANSWER_S) -> set[Shelf]:
        """All queues, tables and buckets there are."""
        ...

    async def make_bucket(self, bucket: str, most_bytes: int, replicas: int = 1) -> None:
        """One that is there stays. When it is full the oldest object goes; with -1 it is never full."""
        ...

    async def put_object(self, bucket: str, name: str, data: bytes, *, answer_s: float = ANSWER_S) -> None:
        """In place of the one of that name."""
        ...

    async def get_object(self, bucket: str, name: str, most_bytes: int, *, answer_s: float = ANSWER_S) -> bytes:
        """Whole and with its checksum checked, or an ``ObjectError``: whatever its description says, a device wrote it."""
        ...

    async def delete_object(self, bucket: str, name: str) -> None: ...

    async def object_names(self, bucket: str) -> list[str]:
        """Of a bucket whose objects are only ever erased, in order; ``MissingError`` where there is no such bucket."""
        ...

    async def erase_object(self, bucket: str, name: str) -> None:
        """Nothing of it stays, not even a mark; nothing where there is none."""
        ...

    async def make_table(self, table: str, history: int, replicas: int = 1) -> None:
        """One that is there stays. It keeps the last ``history`` values of a key."""
        ...

    async def put(self, table: str, key: str, data: bytes) -> None: ...

    async def table(self, table: str, *, answer_s: float = ANSWER_S) -> dict[str, bytes]:
        """The last value of every key; ``MissingError`` where there is no such table."""
        ...


class Connect(Protocol):
    """How a transport is had: tried until it works, and what stands in its way is logged once.

    ``name`` is who connects: the broker lets a device speak and listen under its own name only. ``on_reconnect`` is called
    whenever the connection has come back. A connection that is lost is a warning, unless that is ``expected``.
    """

    async def __call__(
        self,
        servers: list[str],
        *,
        name: str,
        credentials: Path | None,
        insecure: bool,
        on_reconnect: Callable[[], Awaitable[None]] | None = None,
        expected: Callable[[], bool] = lambda: False,
    ) -> Transport: ...


# Everything else


class Clock(Protocol):
    def monotonic_s(self) -> float:
        """Never goes back."""
        ...

    def wall_s(self) -> float:
        """Seconds since 1970, as the system says: it may jump."""
        ...


class Chance(Protocol):
    def uniform(self, low: float, high: float) -> float: ...

    def token(self) -> str:
        """32 hexadecimal digits that nobody can guess."""
        ...


class InAThread(Protocol):
    """What takes long, or waits, beside the event loop. Who stops waiting for it does not end it."""

    async def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


class Appending(Protocol):
    """A file that is written at its end only."""

    def write(self, data: bytes) -> int:
        """How much of it was taken: less at times; ``OSError`` where it is nothing, or the file is not in its place."""
        ...

    def sync(self) -> None:
        """What was written survives a loss of power."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """The files of a run. All of it raises ``OSError``."""

    def write_whole(self, path: Path, data: bytes | str, *, fsync: bool = True) -> None:
        """A reader, or a kill in between, never sees half of it; with ``fsync`` it survives a loss of power too."""
        ...

    def write_digested(self, path: Path, data: bytes, *, fsync: bool = True) -> str:
        """The same; gives the SHA-256 of the data."""
        ...

    def read(self, path: Path) -> bytes: ...

    def read_from(self, path: Path, offset: int, most_bytes: int) -> bytes: ...

    def size(self, path: Path) -> int: ...

    def remove(self, path: Path) -> None:
        """Nothing where there is none."""
        ...

    def names(self, folder: Path) -> list[str]:
        """Of the files in it, drafts included, in any order."""
        ...

    def append_to(self, path: Path) -> Appending:
        """Made where there is none."""
        ...

    def cut(self, path: Path, size: int) -> None:
        """What comes after so many bytes is gone."""
        ...


class BrokerProcess(Protocol):
    """A broker of ours, looked after by the edge server. All of it may wait."""

    @property
    def store(self) -> Path: ...

    def alive(self) -> bool: ...

    def answers(self) -> bool:
        """False where it runs and hangs."""
        ...

    def room_bytes(self) -> int:
        """What is left on the disk of its store."""
        ...

    def stop(self) -> None: ...

    def restart(self) -> None: ...


class WorkerProcess(Protocol):
    """An evaluation worker of ours, looked after by the edge server."""

    def look_after(self) -> bool:
        """True where it had ended and was started again."""
        ...

    def end(self) -> None:
        """It does not answer any more: the next look starts another."""
        ...


@dataclass(frozen=True)
class Ports:
    """Everything that an edge server or a device reaches the world by; its disk and its broker it is given with its run."""

    connect: Connect
    clock: Clock
    chance: Chance
    in_a_thread: InAThread
