"""A client of nats-py, connected: plain text on this machine only, TLS with certificates of both sides everywhere else."""

import asyncio
import logging
import math
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import uniform
from typing import TYPE_CHECKING

from fedtwin.errors import FedtwinError
from fedtwin.live.wire.addresses import check_address, reason_of, ssl_context

if TYPE_CHECKING:
    from nats.aio.client import Client

Callback = Callable[[], Awaitable[None]]
LOG = logging.getLogger("fedtwin.live")
CONNECT_TIMEOUT_S = 5
RECONNECT_S = (0.1, 0.3)  # drawn per client, so that a fleet does not come back all at once
REFUSED_S = 2.0
CLOSE_S, REFUSED_CLOSE_S = 2.0, 0.2
AT_ONCE_S, TIMES_AT_ONCE = 1.0, 3
UNEXPLAINED, UNEXPLAINED_TRIES = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError), 5
REFUSED_HANDSHAKE = "the TLS handshake was refused: the certificate is not accepted"
ENDED_AT_ONCE = "every connection is ended as soon as it is made"
CUT_OFF = "a device that sent far more than it was asked for is cut off, see the edge server's log and fedtwin admin release"
PENDING_BYTES = 64 * 2**20
REFUSALS = ("authorization", "authentication", "certificate", "tls", "ssl")
logging.getLogger("asyncio").addFilter(lambda record: "eof_received() has no effect when using ssl" not in record.getMessage())


async def connect(
    servers: list[str],
    *,
    name: str,
    inbox: str,
    credentials: Path | None,
    insecure: bool,
    on_disconnect: Callback | None = None,
    on_reconnect: Callback | None = None,
    keep_trying: bool = True,
    expected: Callable[[], bool] = lambda: False,
) -> "Client":
    """A connection that comes back by itself, for ever.

    With ``keep_trying`` the first connection is tried until it works, and what stands in its way is logged once; without, one
    failure is a ``FedtwinError``, unless the server ended the connection while we still spoke, so that its reason was not
    heard: then we ask again, a few times. A device that is revoked while connected is cut off, and then refused at every
    attempt. A connection that is lost is a warning, unless that is ``expected``.
    """
    for server in servers:
        check_address(server, credentials=credentials, insecure=insecure)
    context = None if credentials is None else ssl_context(credentials)
    await _checked_library()
    told = ""
    for attempt in count(1):
        try:
            return await _connected(servers, name, inbox, context, on_disconnect, on_reconnect, expected)
        except (TimeoutError, OSError, _nats_error()) as error:
            sentence = _sentence(servers, error, context is not None)
            unexplained = isinstance(error, UNEXPLAINED) and attempt < UNEXPLAINED_TRIES
            if not keep_trying and not unexplained:
                raise FedtwinError(sentence) from None
            if keep_trying and sentence != told:
                LOG.warning("%s Trying again until it works.", sentence)
                told = sentence
            await asyncio.sleep(uniform(*RECONNECT_S))
    raise AssertionError("tried for ever")


async def _connected(
    servers: list[str],
    name: str,
    inbox: str,
    context: ssl.SSLContext | None,
    on_disconnect: Callback | None,
    on_reconnect: Callback | None,
    expected: Callable[[], bool],
) -> "Client":
    from fedtwin.live.wire.client import Client

    client, last = Client(), _LastTrouble(expected)

    async def closed() -> None:
        error = client.last_error
        if last.client and error is not None and error not in (last.error, last.settled):  # the library tells nobody else
            LOG.error("%s: the server closed the connection for good: %s.", name, reason_of(error))

    async def back() -> None:
        client.options["reconnect_time_wait"] = REFUSED_S if last.is_kept_out else uniform(*RECONNECT_S)
        last.back_at = asyncio.get_running_loop().time()
        last.error, last.settled = None, client.last_error
        if on_reconnect is not None:
            await on_reconnect()

    try:
        await client.connect(
            servers,
            name=name,
            inbox_prefix=f"_INBOX.{inbox}",
            error_cb=last.heard,
            disconnected_cb=on_disconnect,
            reconnected_cb=back,
            closed_cb=closed,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=uniform(*RECONNECT_S),  # type: ignore[arg-type]
            connect_timeout=CONNECT_TIMEOUT_S,
            pending_size=PENDING_BYTES,
            tls=context,
            tls_handshake_first=context is not None,  # the library would go without TLS if the greeting asked for none
        )
        if not client.is_connected:  # TLS 1.3 refuses a client after its handshake: to the library an end without an error
            raise last.error or ConnectionResetError(ENDED_AT_ONCE if context is None else REFUSED_HANDSHAKE)
    except BaseException as error:
        await close(client, REFUSED_CLOSE_S)
        if last.error is not None and type(error).__name__ == "NoServersError":
            raise last.error from None
        raise
    client.options.update(allow_reconnect=True, max_reconnect_attempts=-1)
    last.client, last.error = client, None
    return client


async def close(client: "Client", limit_s: float = CLOSE_S) -> None:
    """Ends a connection. The library's own ``close`` waits for ever when the last TLS handshake failed.

    A TLS connection that the other side has just ended has no protocol to write to any more, an ``AttributeError``.
    """
    with suppress(TimeoutError, OSError, AttributeError, _nats_error()):
        await asyncio.wait_for(client.close(), limit_s)


class _LastTrouble:
    """Hears what the library has to say: kept while the first connection is made, logged afterwards, the same thing once."""

    def __init__(self, expected: Callable[[], bool]) -> None:
        self._expected = expected
        self.error: Exception | None = None
        self.settled: Exception | None = None
        self.client: Client | None = None
        self.back_at = -math.inf
        self.at_once = 0

    @property
    def is_kept_out(self) -> bool:
        return self.at_once >= TIMES_AT_ONCE

    def _ended(self) -> None:
        """One that is ended as soon as it is made, again and again, is no accident."""
        assert self.client is not None
        soon = asyncio.get_running_loop().time() < self.back_at + AT_ONCE_S
        self.at_once = self.at_once + 1 if soon else 0
        if self.at_once == TIMES_AT_ONCE:
            LOG.warning("%s: %s: %s.", self.client.options["name"], ENDED_AT_ONCE, CUT_OFF)

    async def heard(self, error: Exception) -> None:
        before, self.error = self.error, error
        if self.client is not None and type(error).__name__ == "UnexpectedEOF":
            self._ended()
        if self.client is None or repr(before) == repr(error) or self.is_kept_out:
            return
        level = logging.INFO if self._expected() else logging.WARNING
        LOG.log(level, "%s: %s.", self.client.options["name"], reason_of(error))
        if _is_refusal(error):
            self.client.options["reconnect_time_wait"] = REFUSED_S


def _sentence(servers: list[str], error: BaseException, secure: bool) -> str:
    reason = reason_of(error)
    place = ", ".join(servers)
    if _is_refusal(error):
        hint = "" if secure else " (it may want --credentials)"
        return f"server {place} and this device do not accept each other: {reason}{hint}."
    if isinstance(error, TimeoutError) or "expecting INFO" in reason:
        reason = "no answer in time" if secure else "no greeting in time, it may want TLS and --credentials"
    return f"server {place} cannot be reached: {reason}."


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLError) or any(word in str(error).lower() for word in REFUSALS)


async def _checked_library() -> None:
    require_nats()
    try:
        from fedtwin.live.wire.client import check_library
    except (ImportError, AttributeError) as error:
        raise FedtwinError(f"this nats-py cannot be used, {error}: pip install fedtwin brings one that can.") from None
    await check_library()


def require_nats() -> None:
    """One sentence where nats-py is not installed."""
    _nats_error()


def _nats_error() -> type[Exception]:
    try:
        from nats.errors import Error
    except ImportError:
        raise FedtwinError("The live fleet needs nats-py: pip install fedtwin.") from None
    return Error
