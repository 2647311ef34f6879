"""The configuration file of the managed NATS server."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.live.broker.monitor import ANYONE, MOST_CLOSED, WATCHER
from fedtwin.live.wire.addresses import is_loopback

NOWHERE = "fedtwin-nowhere"
NEEDED = ("ca.pem", "server/cert.pem", "server/key.pem", "users.conf")


@dataclass
class BrokerOptions:
    """Where the broker keeps its streams, where it listens and who may connect.

    Without a port a free one is taken. ``fsync`` writes every message through to the disk before it is acknowledged: a power
    cut loses nothing then, while a killed process loses nothing either way. ``credentials`` is a folder made by
    ``fedtwin provision``.
    """

    store: Path
    port: int | None = None
    host: str = "127.0.0.1"
    max_payload_bytes: int = 8 * 2**20
    fsync: bool = False
    mqtt_port: int | None = None
    credentials: Path | None = None
    monitor_port: int | None = None
    secret: str | None = None
    unheard: tuple[str, ...] = ()
    heard_again: tuple[str, ...] = ()


def check_exposure(options: BrokerOptions, *, insecure: bool) -> None:
    """Only this machine may be spoken to in plain text, unless the user insists; and the credentials must be complete."""
    if options.credentials is None:
        if not is_loopback(options.host) and not insecure:
            raise FedtwinError(
                f"the broker cannot listen on {options.host!r} without credentials: give --credentials (see fedtwin "
                "provision), listen on 127.0.0.1, or say --insecure."
            )
        return
    for name in NEEDED:
        path = options.credentials / name
        if not (path.is_file() and os.access(path, os.R_OK)):
            raise FedtwinError(
                f"credentials {str(options.credentials)!r} lack a readable {name}: make them with fedtwin provision."
            )


def config_text(folder: Path, options: BrokerOptions) -> str:
    """What ``nats.conf`` says. The monitoring port is for who knows the secret, on this machine."""
    tls = "" if options.credentials is None else _tls(options.credentials.resolve())
    lines = [
        'server_name: "fedtwin"',
        f"host: {_quoted(options.host)}",
        f"port: {options.port}",
        f"max_payload: {options.max_payload_bytes}",
        f"pid_file: {_quoted(folder / 'nats.pid')}",
        f"log_file: {_quoted(folder / 'nats.log')}",
        "logfile_size_limit: 16777216",
        "logfile_max_num: 3",
        f"jetstream {{ store_dir: {_quoted(options.store.resolve())}{', sync_interval: always' if options.fsync else ''} }}",
    ]
    if tls:
        lines.append(f"tls {{ {tls}, handshake_first: true }}")  # no plain-text greeting that could be forged to avoid TLS
    if options.mqtt_port is not None:
        inside = f", tls {{ {tls} }}" if tls else ""
        lines.append(f"mqtt {{ host: {_quoted(options.host)}, port: {options.mqtt_port}{inside} }}")
    if options.secret is not None:
        lines += [f'http: "127.0.0.1:{options.monitor_port}"', f'http_base_path: "/{options.secret}"']
        lines.append(f"max_closed_clients: {MOST_CLOSED}")
        if options.credentials is None:
            lines += _anyone_and_a_watcher(options.secret)
            lines += _unheard(options.unheard, options.heard_again)
    if options.credentials is not None:
        users = os.path.relpath(options.credentials.resolve() / "users.conf", folder)  # the server takes relative includes only
        lines.append(f"include {_quoted(users)}")
    return "\n".join(lines) + "\n"


def port_in(text: str) -> int | None:
    """Of what ``config_text`` has made."""
    found = re.search(r"^port: (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _anyone_and_a_watcher(secret: str) -> list[str]:
    """Everybody is let in without a word, as if there were no users; one user may end connections."""
    return [
        f"authorization {{ users = [ {json.dumps({'user': ANYONE, 'password': secret})} ] }}",
        f'no_auth_user: "{ANYONE}"',
        f'accounts {{ $SYS {{ users: [ {{ user: "{WATCHER}", password: "{secret}" }} ] }} }}',
    ]


def _unheard(subjects: tuple[str, ...], again: tuple[str, ...]) -> list[str]:
    """What is said there goes where nobody listens. To deny it would cost the broker ten times as much: an answer and a line
    in its log for every message. A broker that reloads keeps what it is no longer told, so what is heard ``again`` is mapped
    to itself.
    """
    mapped = {**{subject: subject.replace("*", "$1") for subject in again}, **dict.fromkeys(subjects, NOWHERE)}
    inside = ", ".join(f"{_quoted(subject)}: {_quoted(place)}" for subject, place in mapped.items())
    return [f"mappings {{ {inside} }}"] if mapped else []


def _tls(credentials: Path) -> str:
    files = {"cert_file": "server/cert.pem", "key_file": "server/key.pem", "ca_file": "ca.pem"}
    named = ", ".join(f"{key}: {_quoted(credentials / name)}" for key, name in files.items())
    return f'{named}, verify_and_map: true, min_version: "1.2", timeout: 5'


def _quoted(value: Path | str) -> str:
    return json.dumps(str(value), ensure_ascii=False)
