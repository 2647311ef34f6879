"""The NATS library's client, where it trusts whoever sends: headers that cannot be read, and inboxes that can be guessed."""

import secrets

from nats.aio import client
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


class _Unguessable(NUID):
    """The library counts up. Whoever is asked sees an inbox, and could have the broker's words sent into all the others."""

    def next(self) -> bytearray:
        return bytearray(secrets.token_hex(TOTAL_LENGTH // 2).encode())
