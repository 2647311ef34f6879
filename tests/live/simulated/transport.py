"""What a client asks of the store of a broker in memory: the whole transport."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from fedtwin.live.wire.ports import ANSWER_S, Chance, Entry, Handler, Queue, Roll, Shelf, TransportError
from tests.live.simulated.broker import Connection, MemoryBroker
from tests.live.simulated.line import LOG, RECONNECT_S, Line, MemorySubscription
from tests.live.simulated.store import Bucket, StoredTape


class MemoryTransport(Line):
    """As ``nats_transport.py`` has it, over a ``MemoryBroker``."""

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
        name: str | None = None,
        follows: str | None = None,
        headers: Mapping[str, str] | None = None,
        answer_s: float = ANSWER_S,
    ) -> int:
        self._check_size(data)
        given = dict(headers or {})

        def action(broker: MemoryBroker, connection: Connection) -> int:  # noqa: ARG001
            found = broker.on_disk.tape(tape.name)
            broker.writable()
            added = found.append(data, after, given, name, follows)
            broker.wrote(tape.name, self)
            return added

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
            broker.objects_put += 1

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

    async def table(self, table: str, *, answer_s: float = ANSWER_S) -> dict[str, bytes]:
        found: dict[str, bytes] = await self._call(
            [f"$JS.API.STREAM.INFO.KV_{table}"], lambda broker, _: broker.on_disk.last_values(table), answer_s
        )
        return found


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
