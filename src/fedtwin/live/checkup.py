"""What stands between this machine and a run: looked at one by one, each a line with what is to be done."""

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError

from fedtwin.errors import FedtwinError
from fedtwin.live.broker.permissions import ROLES, WHO_AM_I
from fedtwin.live.seeing import expires_of, unless_refused, whose
from fedtwin.live.wire import nats_connection
from fedtwin.live.wire.addresses import reason_of, ssl_context
from fedtwin.live.wire.nats_transport import NatsTransport
from fedtwin.live.wire.ports import MissingError, NobodyThereError, TooManyWaitError
from fedtwin.live.wire.protocol import Hello, Subjects, Welcome, misfit
from fedtwin.live.wire.troubles import TROUBLES, words_of

ANSWER_S = 3.0
CLOCKS_APART_S, SOON_DAYS = 60.0, 14.0
OLD_WORD_S = 10.0
TRIAL_BYTES = 64 * 1024


class Finding(NamedTuple):
    """``todo`` is what to do about it, where it is not ``ok``."""

    what: str
    ok: bool
    words: str
    todo: str | None = None


def check_certificates(credentials: Path, servers: list[str]) -> list[Finding]:
    """Ours, and that of the servers: whether they can be used, and until when."""
    again = "fedtwin provision makes them anew"
    try:
        context, name, expires = ssl_context(credentials), whose(credentials), expires_of(credentials / "cert.pem")
    except FedtwinError as error:
        return [Finding("certificate", False, str(error).rstrip("."), again)]
    found = [_ends("certificate", f"of {name}", expires, again)]
    if (credentials / "key.pem").stat().st_mode & 0o077:
        found.append(Finding("key", False, "others on this machine can read key.pem", f"chmod 600 {credentials / 'key.pem'}"))
    for server in servers:
        place = urlsplit(server)
        host = place.hostname or ""
        try:
            with (
                socket.create_connection((host, place.port or 4222), timeout=ANSWER_S) as plain,
                context.wrap_socket(plain, server_hostname=host) as secured,
            ):
                ends = ssl.cert_time_to_seconds(str((secured.getpeercert() or {})["notAfter"]))
        except (OSError, KeyError) as error:
            found.append(Finding("server's certificate", False, f"{server}: {reason_of(error)}", "see connection"))
            continue
        found.append(_ends("server's certificate", f"of {host}", datetime.fromtimestamp(ends, UTC), again))
    return found


def _ends(what: str, whom: str, expires: datetime, again: str) -> Finding:
    days = (expires - datetime.now(UTC)).total_seconds() / 86_400.0
    when = f"{whom}, {'ended' if days < 0.0 else 'ends'} {expires:%Y-%m-%d}"
    return Finding(what, days > SOON_DAYS, when, None if days > SOON_DAYS else again)


def check_server(servers: list[str], *, run: str, credentials: Path | None, insecure: bool) -> list[Finding]:
    """The connection, and all that can be seen through it."""

    async def looked() -> list[Finding]:
        return [finding async for finding in _through_the_broker(servers, run, credentials, insecure)]

    return asyncio.run(looked())


async def _through_the_broker(servers: list[str], run: str, credentials: Path | None, insecure: bool) -> AsyncIterator[Finding]:
    place = ", ".join(servers)
    try:
        name, begun = whose(credentials), time.monotonic()
        client = await nats_connection.connect(
            servers, name=name, inbox=name, credentials=credentials, insecure=insecure, keep_trying=False
        )
    except FedtwinError as error:
        todo = "is the edge server or its broker running there, and does a firewall let us through?"
        if "do not accept each other" in str(error):
            todo = "revoked, ended, or of another fleet? fedtwin provision DIR, where the keys are, lists who may connect"
        yield Finding("connection", False, str(error).rstrip("."), todo)
        return
    checks = _Checks(NatsTransport(client), Subjects(run), name, has_rights=credentials is not None)
    try:
        yield Finding("connection", True, f"{place} in {_ms(begun)}, as {name}")
        for check in (checks.rights, checks.edge_server, checks.data_path):
            for finding in await check():
                yield finding
    finally:
        await checks.transport.close()


class _Checks:
    """On a connection that stands."""

    def __init__(self, transport: NatsTransport, subjects: Subjects, name: str, *, has_rights: bool) -> None:
        self.transport, self._subjects, self._name, self._has_rights = transport, subjects, name, has_rights
        self._may_store = not has_rights or name == "edge"

    async def rights(self) -> list[Finding]:
        """As the broker has them, and its clock beside ours."""
        sent = time.time()
        try:
            said = json.loads(await self._asked(self.transport.request(WHO_AM_I, b"", timeout_s=ANSWER_S), WHO_AM_I))
            server_s, allowed = _seconds(said["server"]["time"]), said["data"].get("permissions")
        except (*TROUBLES, ValueError, LookupError) as error:
            again = (
                f"provision DIR --run {self._subjects.run} where the keys are writes rights anew" if self._has_rights else None
            )
            return [Finding("rights", False, f"the broker does not tell them ({words_of(error)})", again)]
        apart_s = server_s - (sent + time.time()) / 2.0
        clock = Finding("clock", abs(apart_s) < CLOCKS_APART_S, f"the broker's is {apart_s:+.1f} s from ours")
        if not clock.ok:
            clock = clock._replace(todo="set the clocks (NTP): certificates and ages are wrong")
        if not allowed:
            return [Finding("rights", True, "everything: the broker asks nobody for a certificate"), clock]
        told = [f"{verb} {' '.join(allowed[verb]['allow'])}" for verb in ("publish", "subscribe") if allowed.get(verb)]
        words, run = " ".join(told), self._subjects.run
        of_run = f"fedtwin.{run}." in words or f"fedtwin-{run}-" in words
        todo = None if of_run else f"these are of another run than {self._subjects.run!r}: give --run or other credentials"
        return [Finding("rights", of_run, "; ".join(told), todo), clock]

    async def edge_server(self) -> list[Finding]:
        """A device says hello without joining; everybody else looks at what the edge server wrote last."""
        nobody = Finding("edge server", False, f"none serves run {self._subjects.run!r}", "start fedtwin edge, or give --run")
        if self._has_rights and self._name not in ROLES:
            subject = self._subjects.hello(self._name)
            try:
                asking = self.transport.request(subject, Hello().encoded(), timeout_s=ANSWER_S)
                welcome = Welcome.model_validate_json(await self._asked(asking, subject))
            except NobodyThereError:
                return [nobody]
            except ValidationError as error:
                return [Finding("edge server", False, misfit(error), "install the same fedtwin on both")]
            except TROUBLES as error:
                return [nobody._replace(words=f"no answer to a hello: {words_of(error)}")]
            todo = None if welcome.accepted else "the edge server's log has more"
            return [Finding("edge server", welcome.accepted, welcome.reason or "answers a hello", todo)]
        if self._has_rights and self._name == "evaluator":
            return []
        try:
            subject = f"$JS.API.STREAM.INFO.KV_{self._subjects.twin_bucket}"
            found = await self._asked(self.transport.table(self._subjects.twin_bucket), subject)
            age_s = time.time() - json.loads(found["run"])["wall_s"]
        except (MissingError, LookupError):
            return [nobody]
        except (*TROUBLES, ValueError) as error:
            return [nobody._replace(words=f"what it shows cannot be read: {words_of(error)}")]
        well = age_s < OLD_WORD_S
        return [Finding("edge server", well, f"its last word is {age_s:.0f} s old", None if well else "is it still running?")]

    async def data_path(self) -> list[Finding]:
        """Stored and acknowledged, where that can be tried; else how long bytes take to the broker."""
        begun = time.monotonic()
        try:
            if self._may_store:
                try:
                    await self.transport.store(self._subjects.pulse, b"-1.0", answer_s=ANSWER_S)
                except TooManyWaitError:
                    return [Finding("data path", True, "the broker stores, and has enough waiting")]
                return [Finding("data path", True, f"stored and acknowledged in {_ms(begun)}")]
            if self._name in ROLES:
                return [Finding("data path", True, f"cannot be tried with the rights of {self._name}")]
            await self.transport.publish(self._subjects.trial(self._name), bytes(TRIAL_BYTES))
            await self.transport.flush(ANSWER_S)
        except NobodyThereError:
            todo = "start fedtwin edge: it makes the streams; a broker of your own needs JetStream"
            return [Finding("data path", False, "the broker stores no uploads of this run", todo)]
        except TROUBLES as error:
            return [Finding("data path", False, f"the broker does not store: {words_of(error)}", "is its disk full?")]
        words = f"{TRIAL_BYTES >> 10} KiB reached the broker in {_ms(begun)}; storing cannot be tried without a task"
        return [Finding("data path", True, words)]

    async def _asked(self, asking: Coroutine[Any, Any, Any], subject: str) -> Any:
        """The answer; a refusal is known before the time is up."""
        return await unless_refused(self.transport, asking, subject)


def _ms(begun: float) -> str:
    return f"{1000.0 * (time.monotonic() - begun):.0f} ms"


def _seconds(stamp: str) -> float:
    """Of the broker's time, which has nanoseconds."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or '0'}")
