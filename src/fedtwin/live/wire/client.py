"""The NATS library's client, where it trusts too much: unreadable headers, inboxes that can be guessed, lost connections.

This is the only file that knows private parts of nats-py. ``check_library`` finds out whether they still are what is built on
here, before anything is connected: a library that has changed is refused, never used with inboxes that can be guessed.
"""

import asyncio
import inspect
import secrets
import time
from importlib.metadata import version
from typing import Any, NoReturn

from nats.aio import client
from nats.nuid import NUID, TOTAL_LENGTH

from fedtwin.errors import FedtwinError
from fedtwin.live.wire.nats_large import LARGE_BYTES, READ_BYTES, LargeParser, LargeTransport, publication

OVERRIDDEN = {
    "_process_headers": ["self", "headers"],
    "_process_pong": ["self"],
    "_connect_to_server": ["self", "s"],
    "_send_publish": ["self", "subject", "reply", "payload", "payload_size", "headers"],
    "_send_command": ["self", "cmd", "priority"],
    "_process_msg": ["self", "sid", "subject", "reply", "data", "headers"],
}
PREFIX = "_INBOX.probe"
WRITE_S = 0.001


class Client(client.Client):
    """One message cannot end the connection, and who has seen one inbox does not know the others."""

    def __init__(self) -> None:
        super().__init__()
        self._nuid = _Unguessable()
        self._ps = LargeParser(self)

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

    async def flush(self, timeout: int = client.DEFAULT_FLUSH_TIMEOUT) -> None:
        """The library's ping overtakes what is still to be written, and its answer would say nothing of that."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while self.is_connected and self.pending_data_size > 0 and loop.time() < end:
            await asyncio.sleep(WRITE_S)
        await super().flush(timeout)

    async def _connect_to_server(self, s: client.Srv) -> None:
        """As the library does it, which would take a transport of its own, and leave open what greeted us wrongly before."""
        s.last_attempt = time.monotonic()
        if isinstance(self._transport, LargeTransport):
            self._transport.close()  # type: ignore[no-untyped-call]
        else:
            self._transport = LargeTransport()  # type: ignore[no-untyped-call]
        await self._transport.connect(s.uri, READ_BYTES, self.options["connect_timeout"])

    async def _send_publish(
        self, subject: str, reply: str, payload: bytes, payload_size: int, headers: dict[str, Any] | None
    ) -> None:
        """The library would copy a large payload twice. All its pieces are there at once: nothing comes in between."""
        if payload_size < LARGE_BYTES:
            await super()._send_publish(subject, reply, payload, payload_size, headers)
            return
        *first, last = publication(subject, reply, payload, headers)
        self._pending += first
        self._pending_data_size += sum(map(len, first))
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += payload_size
        await self._send_command(last)
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()


def connect_anew(connection: client.Client) -> None:
    """The connection ends here, with all that waits at the broker for us, and comes back by itself."""
    if connection._transport is not None:
        connection._transport.close()  # type: ignore[no-untyped-call]


class _Unguessable(NUID):
    """The library counts up. Whoever is asked sees an inbox, and could have the broker's words sent into all the others."""

    def next(self) -> bytearray:
        return bytearray(secrets.token_hex(TOTAL_LENGTH // 2).encode())


async def check_library() -> None:
    """One sentence where the installed nats-py is not what ``Client`` is built on."""
    try:
        for name, parameters in OVERRIDDEN.items():
            method = getattr(client.Client, name, None)
            if not inspect.iscoroutinefunction(method) or list(inspect.signature(method).parameters) != parameters:
                _refuse(f"its Client has no {name}({', '.join(parameters[1:])})")
        probe = _Probe()
        if not isinstance(vars(probe).get("_pongs"), list) or "_transport" not in vars(probe):
            _refuse("its Client keeps no _pongs and _transport")
        if not await probe.all_inboxes_are_ours():
            _refuse("its inboxes would not be of our making, so that they could be guessed")
    except FedtwinError:
        raise
    except Exception as error:
        _refuse(f"{type(error).__name__}: {error}")


def _refuse(why: str) -> NoReturn:
    raise FedtwinError(f"nats-py {version('nats-py')} cannot be used, {why}: pip install fedtwin brings one that can.")


class _Published(Exception):  # noqa: N818
    """A request got as far as its inbox."""


class _Probe(Client):
    """Connected to nothing: it writes down the inboxes that the library makes."""

    def __init__(self) -> None:
        super().__init__()
        self._nuid = self._ours = _Listed()
        self._inbox_prefix = bytearray(PREFIX.encode())
        self._seen: list[str] = []

    async def all_inboxes_are_ours(self) -> bool:
        """That of a subscription, that of all answers, and that of one answer."""
        self._seen.append(self.new_inbox())
        try:
            await self.request("probe", b"", timeout=1.0)
        except _Published:
            return len(self._seen) == 3 and all(map(self._is_ours, self._seen))
        return False

    async def subscribe(self, subject: str, *_: Any, **__: Any) -> Any:
        self._seen.append(subject)

    async def publish(self, subject: str, payload: bytes = b"", reply: str = "", *_: Any, **__: Any) -> None:  # noqa: ARG002
        self._seen.append(reply)
        raise _Published

    def _is_ours(self, inbox: str) -> bool:
        parts = inbox.removeprefix(PREFIX + ".").split(".")
        return inbox.startswith(PREFIX + ".") and all(part == "*" or part[:TOTAL_LENGTH] in self._ours.made for part in parts)


class _Listed(_Unguessable):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def next(self) -> bytearray:
        made = super().next()
        self.made.append(made.decode())
        return made
