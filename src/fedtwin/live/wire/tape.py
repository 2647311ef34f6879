"""A tape at the broker, in the hands of who writes or reads it."""

from collections.abc import Mapping

from fedtwin.live.wire.ports import Entry, Roll, Transport

ANSWER_S = 2.0


class Tape:
    """What ``ports`` says of a ``Roll``, each answer within ``ANSWER_S``."""

    def __init__(self, transport: Transport, name: str, subject: str, *, newest_only: bool = False, replicas: int = 1) -> None:
        self._transport, self._roll = transport, Roll(name, subject, newest_only, replicas)
        self.name, self.subject = name, subject

    async def make(self) -> None:
        await self._transport.make_tape(self._roll, answer_s=ANSWER_S)

    async def append(
        self,
        data: bytes,
        *,
        after: int,
        name: str | None = None,
        follows: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        return await self._transport.append(
            self._roll, data, after=after, name=name, follows=follows, headers=headers, answer_s=ANSWER_S
        )

    async def last(self) -> Entry:
        return await self._transport.last_of(self._roll, answer_s=ANSWER_S)

    async def read(self, after: int, most: int) -> list[Entry]:
        return await self._transport.entries(self._roll, after, most, answer_s=ANSWER_S)

    async def remove(self) -> None:
        await self._transport.delete_tape(self._roll, answer_s=ANSWER_S)
