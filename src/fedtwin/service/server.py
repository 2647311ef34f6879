"""The service as a process: where it listens, who may ask, and how it ends."""

import gc
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from fedtwin.errors import FedtwinError
from fedtwin.live.wire.addresses import is_loopback
from fedtwin.runs import open_run
from fedtwin.service.access import Access, read_tokens
from fedtwin.service.app import make_app
from fedtwin.service.memory import keep_memory_low
from fedtwin.service.patience import Patient
from fedtwin.service.twins import Broker, Twins

GIVES_WAY = 10
MOST_CONNECTIONS = 500
INTERRUPTED = 130
COLLECTED_AFTER = 50_000, 20, 100
"""An answer about thousands of devices makes as many tuples and keeps none: looking for garbage took a quarter of its time."""


@dataclass(frozen=True)
class Listening:
    """An address, a port (0 for a free one), and what other machines need: a certificate with its key, and tokens."""

    host: str = "127.0.0.1"
    port: int = 8080
    tokens: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def check(self) -> None:
        """Other machines are answered with TLS and to tokens only."""
        if (self.certificate is None) != (self.key is None):
            raise FedtwinError("--cert and --key belong together: a certificate and its key, both in PEM.")
        here = self.host == "localhost" or is_loopback(self.host)
        if not here and (self.tokens is None or self.certificate is None):
            raise FedtwinError(
                f"--host {self.host} can be reached from other machines: it needs --tokens FILE, --cert FILE and --key FILE."
            )


def serve_runs(
    folders: Sequence[Path],
    where: Listening,
    *,
    say: Callable[[str], None],
    trust: bool = False,
    broker: Broker | None = None,
    beside: bool = False,
) -> None:
    """Serves until SIGTERM or Ctrl-C. ``say`` is told the address once it listens.

    ``beside`` an edge server it waits for the run to begin, and gives way to it.
    """
    where.check()
    keep_memory_low(pandas=trust)
    gc.set_threshold(*COLLECTED_AFTER)
    if beside:
        os.nice(GIVES_WAY)
    else:
        for folder in folders:
            open_run(folder)
    access = Access(None if where.tokens is None else read_tokens(where.tokens))
    tls = _tls(where)
    twins = Twins(folders, trust=trust, broker=broker, access=access, tls=bool(tls))
    app = make_app(twins)
    with _socket(where) as listening:
        host, port = listening.getsockname()[:2]
        say(f"The page is at {'https' if tls else 'http'}://{'[' + host + ']' if ':' in host else host}:{port}/")
        try:
            uvicorn.Server(settings_of(app, tls)).run(sockets=[listening])
        except KeyboardInterrupt:
            if twins.still_read():  # Python cannot end in good order around a thread that is busy outside of it
                say("interrupted")
                os._exit(INTERRUPTED)
            raise


def settings_of(app: Starlette, tls: dict[str, Any]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Patient,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        limit_concurrency=MOST_CONNECTIONS,
        lifespan="on",
        proxy_headers=False,
        **tls,
    )


def _tls(where: Listening) -> dict[str, Any]:
    if where.certificate is None or where.key is None:
        return {}
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(where.certificate, where.key, _no_pass_phrase)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "reason", None) or error.strerror or "they do not fit"
        files = f"--cert {str(where.certificate)!r} and --key {str(where.key)!r}"
        raise FedtwinError(f"{files} cannot be used: {why}.") from None
    return {"ssl_certfile": str(where.certificate), "ssl_keyfile": str(where.key)}


def _no_pass_phrase() -> str:
    raise FedtwinError("--key is encrypted, and nobody is there to type its pass phrase: give a key without one.")


def _socket(where: Listening) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(socket.SOMAXCONN)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "this is no name of a host"
        raise FedtwinError(f"--host {where.host[:100]} --port {where.port} cannot be listened at: {why}.") from None
    return listening
