"""Who begins to ask and does not go on, or asks and does not listen, is cut; who asks, waits and listens is not."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fedtwin.service import limits, patience
from tests.live.run.test_live_run import begun
from tests.service.serving import serving

GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
SHORT_S, LONG_S = 0.4, 30.0


@contextmanager
def connected(client: httpx.Client, receives_bytes: int | None = None) -> Iterator[socket.socket]:
    with socket.socket() as made:
        if receives_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives_bytes)
        made.settimeout(LONG_S)
        made.connect((client.base_url.host, client.base_url.port))
        yield made


def cut_after_s(connection: socket.socket, drips: bytes = b"") -> float:
    """Seconds until the other end has ended it, while ``drips`` are sent one by one."""
    began, connection_ended = time.monotonic(), False
    connection.settimeout(0.02)
    while not connection_ended and time.monotonic() - began < LONG_S:
        try:
            connection.send(drips[:1])
            drips = drips[1:]
            connection_ended = connection.recv(65536) == b""
        except TimeoutError:
            continue
        except OSError:
            connection_ended = True
    assert connection_ended
    return time.monotonic() - began


def test_a_head_that_does_not_come_is_not_waited_for(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ASK_S", SHORT_S)
    with connected(client) as silent:
        assert cut_after_s(silent) >= SHORT_S * 0.9
    with connected(client) as dripping:
        assert SHORT_S * 0.9 <= cut_after_s(dripping, b"GET / HTTP/1.1\r\nHost: " + b"a" * 10_000) < LONG_S / 2
    with connected(client) as second:
        second.sendall(GET % b"health")
        assert second.recv(65536).startswith(b"HTTP/1.1 200")
        second.sendall(b"GET /hea")
        assert SHORT_S * 0.9 <= cut_after_s(second) < LONG_S / 2


def test_a_body_that_does_not_come_is_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_S", SHORT_S)
    with connected(client) as half:
        half.sendall(b"POST /api/whatif HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        half.sendall(b"Content-Length: 99\r\n\r\n{")
        assert half.recv(65536).startswith(b"HTTP/1.1 408")


def test_who_does_not_read_is_cut(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LISTEN_S", SHORT_S)
    with connected(client, receives_bytes=4096) as deaf:
        deaf.settimeout(0.1)
        with pytest.raises((ConnectionError, BrokenPipeError)):
            for _ in range(300):
                try:
                    deaf.send(GET % b"static/vendor/uplot.js")
                except TimeoutError:
                    continue
                time.sleep(0.02)


def test_who_waits_for_events_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ASK_S", SHORT_S)
    monkeypatch.setattr(patience, "LISTEN_S", SHORT_S)
    monkeypatch.setattr("fedtwin.service.app.HEARTBEAT_S", 1)
    live = begun(tmp_path / "run")
    with serving(tmp_path / "run") as client, client.stream("GET", "/api/runs/run/events") as stream:
        began, lines = time.monotonic(), stream.iter_lines()
        while time.monotonic() - began < 4 * SHORT_S + 1:
            next(lines)
    live.close()
