"""What the tests of a broker share: who hears what, clients, a queue of one's own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fedtwin.live.wire.ports import (
    Incoming,
    Queue,
    Transport,
)
from tests.live.wire.benches import Bench

LONG_S, SOON_S = 30.0, 0.3


@dataclass
class Heard:
    """What a handler got, in its order."""

    messages: list[Incoming] = field(default_factory=list)
    acknowledges: bool = False

    async def __call__(self, message: Incoming) -> None:
        self.messages.append(message)
        if self.acknowledges:
            await message.ack()

    @property
    def data(self) -> list[bytes]:
        return [message.data for message in self.messages]

    async def until(self, count: int) -> list[bytes]:
        await until(lambda: len(self.messages) >= count)
        return self.data


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def clients(broker: Bench, *names: str) -> AsyncIterator[list[Transport]]:
    made: list[Transport] = []
    try:
        for name in names:
            made.append(await broker.connect(name))  # noqa: PERF401
        yield made
    finally:
        for client in made:
            await client.close()


def queue_of(name: str, most_waiting: int = 4, most_message_bytes: int = 1000) -> Queue:
    return Queue(name, (f"{name}.up.*", f"{name}.pulse"), most_waiting, most_message_bytes)
