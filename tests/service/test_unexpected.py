"""What nobody thought of: an answer all the same, one line in the log, and places that are given back."""

import asyncio
import hashlib
import logging
import shutil
import socket
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedtwin.errors import FedtwinError
from fedtwin.service.app import _Stream, make_app
from fedtwin.service.limits import STREAMS_EACH, Limits
from fedtwin.service.routes import Asked, Route
from fedtwin.service.server import Listening, _socket, _tls
from fedtwin.service.telling import UnansweredError
from fedtwin.service.twins import Twins
from tests.live.run.test_live_run import begun
from tests.service.serving import serving


def test_an_error_that_nobody_expected_is_an_answer_and_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(twins: Twins, asked: Asked) -> Any:  # noqa: ARG001
        raise ValueError("math domain\nerror")

    routes = (Route("GET", "/fails", "Fails", fail),)
    monkeypatch.setattr("tests.service.serving.make_app", lambda twins: make_app(twins, routes))
    with serving(folder) as client:
        answer = client.get("/fails")
    assert answer.status_code == 500
    assert answer.json() == {"status": 500, "error": "It could not be answered, for a reason that is logged: ValueError."}
    assert caplog.messages == ["GET '/fails': ValueError: math domain error"]


def test_gains_that_no_radio_has_are_left_out_of_the_comparison(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    table = pq.read_table(run / "rounds.parquet")
    place = table.schema.get_field_index("known_gain")
    gains = table["known_gain"].to_pylist()
    gains[100:140] = [float("inf"), float("nan"), -1.0, 0.0] * 10
    column = pa.array(gains, table.schema.field(place).type)
    pq.write_table(table.set_column(place, table.schema.field(place), column), run / "rounds.parquet")
    before, after = (hashlib.sha256((one / "rounds.parquet").read_bytes()).hexdigest() for one in (folder, run))
    (run / "SHA256SUMS").write_text((run / "SHA256SUMS").read_text().replace(before, after))
    with serving(folder, run) as client:
        whole = client.get("/api/runs/factory/fidelity").json()["fleet"]["time_s"]["count"]
        answer = client.get("/api/runs/run/fidelity")
        assert answer.status_code == 200, answer.text
        assert whole - 40 <= answer.json()["fleet"]["time_s"]["count"] < whole


def test_a_thread_that_fails_says_so_in_one_line(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    twins = Twins([folder])

    def make(run: Any) -> Any:  # noqa: ARG001
        raise ZeroDivisionError("by nought")

    with twins.opened():
        served = twins.run("factory")
        assert served.readable
        served._making.add("fidelity")
        served._make("fidelity", make)
        assert caplog.messages == ["fidelity of factory: ZeroDivisionError: by nought"] and not served._making


def test_streams_are_counted_when_they_are_let_in(tmp_path: Path) -> None:
    """Of ninety that came at once sixty-four were let in: they were counted only when they had begun."""
    live = begun(tmp_path / "run")
    let_in: list[int] = []
    together = threading.Barrier(40)
    with serving(tmp_path / "run") as client:
        address = f"{client.base_url}/api/runs/run/events"

        def listen() -> None:
            with httpx.Client(timeout=60) as one:
                together.wait(60)
                with one.stream("GET", address) as answer:
                    let_in.append(answer.status_code)
                    together.wait(60)

        threads = [threading.Thread(target=listen) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    live.close()
    assert sorted(let_in) == [200] * STREAMS_EACH + [429] * (40 - STREAMS_EACH)


def test_a_stream_that_never_begins_gives_its_place_back() -> None:
    limits = Limits()

    async def events() -> AsyncIterator[Any]:
        yield "never"

    async def broken(*_: Any) -> Any:
        raise OSError("the connection is gone")

    async def begin() -> None:
        for _ in range(3 * STREAMS_EACH):
            with pytest.raises((OSError, ExceptionGroup)):
                await _Stream(events(), limits.require_stream("here"))({"type": "http", "method": "GET"}, broken, broken)

    asyncio.run(begin())
    for _ in range(STREAMS_EACH):
        limits.require_stream("here")
    with pytest.raises(UnansweredError, match="streams are open already"):
        limits.require_stream("here")


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_no_http_behind_a_head_is_no_traceback(
    client: httpx.Client, caplog: pytest.LogCaptureFixture, apart: bool
) -> None:
    head = b"POST /api/whatif HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=30) as connection:
        connection.sendall(head + (b"" if apart else b"zz\r\nnothing\r\n"))
        if apart:
            assert connection.recv(65536).startswith(b"HTTP/1.1 415")
            connection.sendall(b"zz\r\nnothing\r\n")
        while connection.recv(65536):
            pass
    assert client.get("/health").status_code == 200
    assert all(record.levelno < logging.ERROR and record.exc_info is None for record in caplog.records), caplog.text


def test_where_a_run_lies_is_not_told(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    with serving(tmp_path / "run") as client:
        refused = client.get("/api/runs/run/decision?round=99")
        assert refused.status_code in (404, 409) and str(tmp_path) not in refused.text
    live.close()
    twins = Twins([tmp_path / "run"])
    assert twins.without_folders(f"{str(tmp_path / 'run')!r} is gone.") == "'run' is gone."
    assert Twins([Path()]).without_folders("It is gone.") == "It is gone."


def test_a_name_of_a_host_that_is_none_is_a_sentence() -> None:
    with pytest.raises(FedtwinError, match="cannot be listened at: this is no name of a host"):
        _socket(Listening(host="a" * 300, port=0))


def test_a_key_with_a_pass_phrase_is_a_sentence(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:secret", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    with pytest.raises(FedtwinError, match="--key is encrypted"):
        _tls(Listening(certificate=certificate, key=key))
