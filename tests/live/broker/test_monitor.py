"""The broker's own numbers, where it does not tell them as it should."""

import socket
import threading

import pytest

from fedtwin.live.broker.monitor import Connection, Monitor

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 103\r\n\r\n"
CONNECTION = b'{"connections": [{"cid": 7, "authorized_user": "press-1", "in_msgs": 3, "in_bytes": 10, "name": "press-1"}]}'


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1", b"HTTP/1.1 200 OK\r\n\r\n", WHOLE, WHOLE + CONNECTION[:40], b"\x16\x03\x01 what is this\r\n\r\n"]
)
def test_a_broker_that_is_killed_while_it_answers_has_not_answered(said: bytes) -> None:
    """It ended the edge server: ``IncompleteRead`` is no ``OSError``."""
    assert connections_of(said) is None


def test_a_proxy_of_the_environment_is_none_of_our_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    found = connections_of(b"HTTP/1.1 200 OK\r\n\r\n" + CONNECTION)
    assert found is not None and [one.name for one in found] == ["press-1"]


def connections_of(said: bytes) -> list[Connection] | None:
    with socket.create_server(("127.0.0.1", 0)) as broker:

        def answer() -> None:
            connection, _ = broker.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(said)

        answering = threading.Thread(target=answer)
        answering.start()
        try:
            return Monitor("127.0.0.1", 0, broker.getsockname()[1], "secret").connections()
        finally:
            answering.join()
