"""A run as its edge server shows it at the broker, seen by who may only read."""

import asyncio
import json
import re
import ssl
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from fedtwin.errors import FedtwinError
from fedtwin.live.views.status import status_of
from fedtwin.live.wire import nats_connection
from fedtwin.live.wire.nats_transport import NatsTransport
from fedtwin.live.wire.ports import MissingError, TransportError
from fedtwin.live.wire.protocol import Subjects, check_name
from fedtwin.live.wire.tasks import end_tasks
from fedtwin.live.wire.troubles import TROUBLES, words_of

T = TypeVar("T")
USER = re.compile(rb"([A-Za-z0-9_-]{1,64})@[0-9a-f]+\.fedtwin")
ADDRESS = re.compile(rb"\x81(?=(.))", re.DOTALL)  # in a certificate: an e-mail address, after its length
VALID = re.compile(rb"(?:\x17\x0d\d{12}|\x18\x0f\d{14})Z(?:\x17\x0d|\x18\x0f)(\d{12,14})Z")
VIEWER = "viewer"
DEVICE = "device."
REFUSED_AFTER_S = 0.05


def whose(credentials: Path | None) -> str:
    """The name in a certificate of ``fedtwin provision``: a role, or a device. Without one, a viewer."""
    if credentials is None:
        return VIEWER
    der = _der(credentials / "cert.pem")
    for mark in ADDRESS.finditer(der):
        begin = mark.end() + 1
        if (user := USER.fullmatch(der[begin : begin + mark[1][0]])) is not None:
            return user[1].decode()
    raise FedtwinError(f"credentials {str(credentials)!r} are of nobody: make them with fedtwin provision.")


def expires_of(certificate: Path) -> datetime:
    """When it ends. Of its two times, which stand side by side, the second; a board has no library that reads more."""
    found = VALID.search(_der(certificate))
    if found is None:
        raise FedtwinError(f"certificate {str(certificate)!r} has no end that can be read.")
    digits = found[1].decode()
    return datetime.strptime(digits, "%Y%m%d%H%M%S" if len(digits) == 14 else "%y%m%d%H%M%S").replace(tzinfo=UTC)


def _der(certificate: Path) -> bytes:
    try:
        return ssl.PEM_cert_to_DER_cert(certificate.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise FedtwinError(f"certificate {str(certificate)!r} cannot be read: {error}.") from None


class RefusedError(TransportError):
    """The broker does not let us speak there."""


async def unless_refused(transport: NatsTransport, asking: Coroutine[Any, Any, T], subject: str) -> T:
    """The broker drops what may not be asked, and says so beside: nobody waits for an answer then."""
    task = asyncio.create_task(asking)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=REFUSED_AFTER_S)
            if transport.refused(subject):
                raise RefusedError("it is not allowed")
        return task.result()
    finally:
        await end_tasks([task])


class Viewer:
    """A connection that only looks: ``with Viewer(...) as viewer: viewer.look()``."""

    def __init__(
        self, servers: list[str], *, run: str = "main", credentials: Path | None = None, insecure: bool = False
    ) -> None:
        check_name("--run", run)
        self._servers, self._run, self._credentials, self._insecure = servers, run, credentials, insecure
        self._runner = asyncio.Runner()

    def __enter__(self) -> "Viewer":
        name = whose(self._credentials)
        try:
            client = self._runner.run(
                nats_connection.connect(
                    self._servers,
                    name=name,
                    inbox=name,
                    credentials=self._credentials,
                    insecure=self._insecure,
                    keep_trying=False,
                )
            )
        except BaseException:
            self._runner.close()
            raise
        self._transport = NatsTransport(client)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._runner.run(self._transport.close())
        self._runner.close()

    def look(self) -> dict[str, Any]:
        """The run and its devices, as ``status_of`` gives them."""
        place = ", ".join(self._servers)
        table = Subjects(self._run).twin_bucket
        try:
            found = self._runner.run(self._read(table))
        except MissingError:
            raise FedtwinError(f"The broker at {place} knows no run {self._run!r}: has its edge server been started?") from None
        except TROUBLES as error:
            raise FedtwinError(f"The run {self._run!r} cannot be read at {place}: {words_of(error)}.") from None
        if "run" not in found:
            raise FedtwinError(f"The edge server of run {self._run!r} shows nothing yet, or is of an older version.")
        run = json.loads(found["run"])
        devices = {
            key.removeprefix(DEVICE): json.loads(value) for key, value in sorted(found.items()) if key.startswith(DEVICE)
        }
        age_s = max(time.time() - run["wall_s"], 0.0)
        now_s = run["at_s"] if run["finished"] or run["stopped"] else run["at_s"] + age_s / run["time_scale"]
        return status_of(run, devices, now_s=now_s, word_age_s=age_s)

    async def _read(self, table: str) -> dict[str, bytes]:
        try:
            return await unless_refused(self._transport, self._transport.table(table), f"$JS.API.STREAM.INFO.KV_{table}")
        except RefusedError:
            raise FedtwinError(
                f"--credentials: these may not read run {self._run!r}, use those of its viewer or operator."
            ) from None
