"""A program that floods a broker as fast as it can: ``python -m tests.live.flooder HOST PORT NAME KIND [CREDENTIALS]``.

It prints what it has sent every second, with its CPU seconds, and comes again whenever it is cut.
"""

import json
import socket
import ssl
import sys
import time
from contextlib import suppress
from pathlib import Path

from fedtwin.live.wire.protocol import Hello
from tests.live.brokers import RUN

ID_BYTES, BATCH = 60_000, 50


def hellos(name: str, _: int) -> bytes:
    hello = Hello(samples=50, fresh=True).encoded()
    return (f"PUB fedtwin.{RUN}.hello.{name} {len(hello)}\r\n".encode() + hello + b"\r\n") * BATCH


def ids(name: str, number: int) -> bytes:
    """Uploads that nobody waits for, each with an id of its own that the broker remembers."""
    header = b"NATS/1.0\r\nNats-Msg-Id: " + f"{number:0{ID_BYTES}d}".encode() + b"\r\n\r\n"
    return f"HPUB fedtwin.{RUN}.upload.{name} {len(header)} {len(header)}\r\n".encode() + header + b"\r\n"


KINDS = {"hellos": (hellos, BATCH), "ids": (ids, 1)}


def connected(host: str, port: int, name: str, credentials: str | None) -> socket.socket:
    plain = socket.create_connection((host, port), 5.0)
    if credentials is not None:
        context = ssl.create_default_context(cafile=str(Path(credentials) / "ca.pem"))
        context.check_hostname = False
        context.load_cert_chain(Path(credentials) / "cert.pem", Path(credentials) / "key.pem")
        plain = context.wrap_socket(plain)
    login = json.dumps({"name": name, "verbose": False, "pedantic": False, "headers": True})
    plain.sendall(f"CONNECT {login}\r\nPING\r\n".encode())
    return plain


def main() -> None:
    host, port, name, kind, *credentials = sys.argv[1:]
    made, per_write = KINDS[kind]
    sent = cuts = 0
    told = time.monotonic()
    while True:
        with suppress(OSError), connected(host, int(port), name, credentials[0] if credentials else None) as broker:
            while True:
                broker.sendall(made(name, sent))
                sent += per_write
                if time.monotonic() > told + 1.0:
                    told = time.monotonic()
                    print(json.dumps({"sent": sent, "cuts": cuts, "cpu_s": time.process_time()}), flush=True)
        cuts += 1
        time.sleep(0.2)
        if time.monotonic() > told + 1.0:
            told = time.monotonic()
            print(json.dumps({"sent": sent, "cuts": cuts, "cpu_s": time.process_time()}), flush=True)


if __name__ == "__main__":
    main()
