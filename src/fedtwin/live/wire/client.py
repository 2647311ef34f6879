"""The NATS library's client, where it trusts too much: unreadable headers, inboxes that can be guessed, lost connections."""

import asyncio
import secrets

from nats.aio import client
from nats.aio.transport import Transport
from nats.nuid import NUID, TOTAL_LENGTH


class Client(client.Client):
    """One message cannot end the connection, and who has seen one inbox does not know the others."""

    def __init__(self) -> None:
        super().__init__()
        self._nuid = _Unguessable()

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        """The library would stop reading for good, and after a restart again: the message waits at the broker."""
        try:
            return await super()._process_headers(headers)
        except Exception:
            return None

    async def _process_pong(self) -> None:
        """The library would stop reading where nobody waits for the answer to a ping any more."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _connect_to_server(self, s: client.Srv) -> None:
        await super()._connect_to_server(s)
        assert self._transport is not None
        _write_pieces_as_one(self._transport)


def _write_pieces_as_one(transport: Transport) -> None:
    """The library writes until it hears that a connection is lost. ``write`` does nothing then, on every Python; ``writelines``
    of asyncio in 3.12 and 3.13 fails (python/cpython#136234).
    """

    def writelines(payload: list[bytes]) -> None:
        transport.write(b"".join(payload))

    transport.writelines = writelines  # type: ignore[method-assign]


class _Unguessable(NUID):
    """The library counts up. Whoever is asked sees an inbox, and could have the broker's words sent into all the others."""

    def next(self) -> bytearray:
        return bytearray(secrets.token_hex(TOTAL_LENGTH // 2).encode())
