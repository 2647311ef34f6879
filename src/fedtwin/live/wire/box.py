"""Files at the broker, by name, in a bucket that forgets nothing by itself."""

from fedtwin.live.wire.ports import Transport

MOST_BYTES = 2**40


class Box:
    """``names`` are of whole files."""

    def __init__(self, transport: Transport, bucket: str, replicas: int = 1) -> None:
        self._transport, self._bucket, self._replicas = transport, bucket, replicas

    async def make(self) -> None:
        """One that is there stays."""
        await self._transport.make_bucket(self._bucket, -1, self._replicas)

    async def put(self, name: str, data: bytes) -> None:
        await self._transport.put_object(self._bucket, name, data)

    async def get(self, name: str) -> bytes:
        """Or an ``ObjectError``."""
        return await self._transport.get_object(self._bucket, name, MOST_BYTES)

    async def names(self) -> list[str]:
        """``MissingError`` where the broker has the box no more."""
        return await self._transport.object_names(self._bucket)

    async def remove(self, name: str) -> None:
        """Nothing of it stays; nothing where there is none."""
        await self._transport.erase_object(self._bucket, name)
