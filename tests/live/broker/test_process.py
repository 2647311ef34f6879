"""The managed broker: started, killed, found again, restarted on its port; what it has acknowledged stays."""

import asyncio
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.files import write_whole
from fedtwin.live.broker import process, program
from fedtwin.live.broker.process import Broker, BrokerOptions
from fedtwin.live.broker.program import free_port
from fedtwin.live.broker.provisioning import provision
from fedtwin.live.wire.nats_connection import connect
from fedtwin.processes import runs_with
from fedtwin.supervision import Process, launch
from tests.live.brokers import LIMIT_S, frozen, running, until

STARTER = """
import os, sys
from pathlib import Path
from fedtwin.live.broker.process import Broker, BrokerOptions
folder = Path(sys.argv[1])
broker = Broker.start(folder / "broker", BrokerOptions(folder / "store"), die_with_parent=sys.argv[2] == "dies")
print(broker.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def started_and_orphaned(folder: Path, how: str) -> int:
    """A broker whose starter has been killed; gives its process."""
    done = subprocess.run([sys.executable, "-c", STARTER, str(folder), how], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    return int(done.stdout)


async def say(url: str, *, word: bytes | None) -> int:
    """Stores a word in the stream, made if need be; gives how many there are."""
    client = await connect([url], name="a", inbox="a", credentials=None, insecure=False)
    stream = client.jetstream()
    await stream.add_stream(name="words", subjects=["word"])
    if word is not None:
        await stream.publish("word", word)
    count = (await stream.stream_info("words")).state.messages
    await client.close()
    return count


@pytest.mark.parametrize("fsync", [False, True])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, fsync: bool) -> None:
    broker = Broker.start(tmp_path / "broker", BrokerOptions(tmp_path / "store", fsync=fsync), die_with_parent=True)
    try:
        assert asyncio.run(say(broker.url, word=b"one")) == 1
        port = broker.options.port
        os.kill(broker.pid, signal.SIGKILL)
        assert asyncio.run(until(lambda: not broker.alive()))
        broker.restart()
        assert broker.options.port == port and broker.alive()
        assert asyncio.run(say(broker.url, word=None)) == 1
        assert ("sync_interval: always" in (tmp_path / "broker/nats.conf").read_text()) == fsync
    finally:
        broker.stop()


def test_the_record_says_where_it_is(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        record = json.loads((tmp_path / "broker/broker.json").read_text())
        assert record == {"pid": broker.pid, "port": broker.options.port, "mqtt_port": None, "url": broker.url}
        assert os.getsid(broker.pid) == broker.pid  # Ctrl-C in a terminal goes to a session
        assert int((tmp_path / "broker/nats.pid").read_text()) == broker.pid
        with pytest.raises(FedtwinError, match="is running already"):
            Broker.start(tmp_path / "broker", broker.options)
    assert not broker.alive()
    broker.stop()


def test_an_orphan_is_adopted_and_a_dead_one_comes_back_on_its_port(tmp_path: Path) -> None:
    pid = started_and_orphaned(tmp_path, "stays")
    options = BrokerOptions(tmp_path / "store")
    broker = Broker.adopt_or_start(tmp_path / "broker", options)
    try:
        assert broker.pid == pid and broker.alive()
        assert asyncio.run(say(broker.url, word=b"one")) == 1
        broker.stop()
        assert not broker.alive() and not runs_with(pid, "nats-server")
        again = Broker.adopt_or_start(tmp_path / "broker", options, die_with_parent=True)
        try:
            assert again.url == broker.url and again.pid != pid
            assert asyncio.run(say(again.url, word=None)) == 1
        finally:
            again.stop()
    finally:
        broker.stop()


def test_an_orphan_with_other_settings_is_replaced(tmp_path: Path) -> None:
    pid = started_and_orphaned(tmp_path, "stays")
    broker = Broker.adopt_or_start(tmp_path / "broker", BrokerOptions(tmp_path / "store", max_payload_bytes=2**20))
    try:
        assert broker.pid != pid and not runs_with(pid, "nats-server")
        assert "max_payload: 1048576" in (tmp_path / "broker/nats.conf").read_text()
    finally:
        broker.stop()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system tells a child of its parent's end on Linux only")
def test_it_ends_with_its_parent_if_asked(tmp_path: Path) -> None:
    pid = started_and_orphaned(tmp_path, "dies")
    assert asyncio.run(until(lambda: not runs_with(pid, "nats-server")))


def test_a_recorded_process_that_is_another_program_is_left_alone(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        options = first.options
    (tmp_path / "broker/broker.json").write_text(json.dumps({"pid": os.getpid(), "port": options.port}))
    broker = Broker.adopt_or_start(tmp_path / "broker", replace(options, port=None), die_with_parent=True)
    try:
        assert broker.pid != os.getpid() and broker.options.port == options.port
    finally:
        broker.stop()


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        options = BrokerOptions(tmp_path / "other", port=first.options.port)
        with pytest.raises(FedtwinError, match=r"does not start: .*address already in use"):
            Broker.start(tmp_path / "second", options)
        assert first.alive()


@pytest.mark.parametrize("how", ["restarted", "found again"])
def test_a_port_that_is_still_held_for_a_moment_is_waited_for(tmp_path: Path, how: str) -> None:
    """A process that was killed is gone before its port is."""
    with running(tmp_path) as broker:
        broker.stop()
        holder = socket.create_server(("127.0.0.1", broker.options.port or 0))
        threading.Timer(0.2, holder.close).start()
        if how == "restarted":
            broker.restart()
        else:
            broker = Broker.adopt_or_start(broker.folder, BrokerOptions(broker.store), die_with_parent=True)
        assert broker.answers()
        broker.stop()


@pytest.mark.parametrize("file", ["nats.conf", "broker.json"])
def test_a_full_disk_is_one_sentence_and_no_broker_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    started: list[Process] = []

    def full(path: Path, *rest: Any) -> None:
        if path.name == file:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_whole(path, *rest)

    def launched(*words: Any, **options: Any) -> Process:
        started.append(launch(*words, **options))
        return started[-1]

    monkeypatch.setattr(process, "write_whole", full)
    monkeypatch.setattr(process, "launch", launched)
    with pytest.raises(FedtwinError, match="does not start: No space left on device"):
        Broker.start(tmp_path / "broker", BrokerOptions(tmp_path / "store"), die_with_parent=True)
    assert all(one.poll() is not None for one in started) and len(started) == (file == "broker.json")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "edge.example", "192.0.2.1"])
def test_listening_to_others_needs_credentials(tmp_path: Path, host: str) -> None:
    with pytest.raises(FedtwinError, match=r"without credentials: .*--insecure"):
        Broker.start(tmp_path / "broker", BrokerOptions(tmp_path / "store", host=host))
    assert not (tmp_path / "broker").exists()


def test_incomplete_credentials_are_named(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"lack a readable ca\.pem"):
        Broker.start(tmp_path / "broker", BrokerOptions(tmp_path / "store", credentials=tmp_path / "none"))


@pytest.mark.parametrize("secure", [False, True])
def test_a_broker_that_hangs_does_not_answer(tmp_path: Path, secure: bool) -> None:
    if secure:
        provision(tmp_path / "fleet", run="main", server_names=["127.0.0.1"], devices=[])
    with running(tmp_path, tmp_path / "fleet" if secure else None) as broker:
        assert broker.answers(LIMIT_S)
        with frozen(broker.pid):
            assert not broker.answers(limit_s=0.3)
        assert broker.answers(LIMIT_S)
    assert not broker.answers()


def test_the_port_of_a_killed_broker_is_not_taken_by_a_connection_of_somebody_else() -> None:
    """A system gives outgoing connections ports from 32768 on, at the least."""
    ports = [free_port() for _ in range(200)]
    assert max(ports) < 32_768 and min(ports) > 1024 and len(set(ports)) > 150
    with socket.socket() as taken, pytest.MonkeyPatch.context() as patch:
        taken.bind(("127.0.0.1", ports[0]))
        patch.setattr(program, "PORTS", [ports[0]] * program.TRIES)
        assert free_port() != ports[0]


def test_a_broker_whose_starter_was_killed_before_it_was_recorded_is_found(tmp_path: Path) -> None:
    """It holds the port that the devices look for: another one could never start there."""
    with running(tmp_path) as broker:
        record = broker.folder / "broker.json"
        told = json.loads(record.read_text(encoding="utf-8"))
        record.write_text(json.dumps({**told, "pid": 2**22 - 1}), encoding="utf-8")
        again = Broker.adopt_or_start(broker.folder, replace(broker.options, port=None))
        assert again.pid == broker.pid and again.alive()


UNRECORDED = """
import os, sys
from pathlib import Path
from fedtwin.live.broker.process import Broker, BrokerOptions
Broker._record = lambda broker: (print(broker.pid, broker.options.port, flush=True), os.kill(os.getpid(), 9))
Broker.start(Path(sys.argv[1]) / "broker", BrokerOptions(Path(sys.argv[1]) / "store"))
"""


@pytest.mark.parametrize("listen", [True, False])
def test_a_first_broker_whose_starter_was_killed_before_it_was_recorded_is_no_obstacle(tmp_path: Path, listen: bool) -> None:
    """Nor is a second one started beside it on the same store: its port is the one that the devices know."""
    done = subprocess.run([sys.executable, "-c", UNRECORDED, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False)
    pid, port = map(int, done.stdout.split())
    try:
        assert not (tmp_path / "broker/broker.json").exists() and runs_with(pid, "nats-server")
        with pytest.raises(FedtwinError, match=f"is running already, as process {pid}"):
            Broker.start(tmp_path / "broker", BrokerOptions(tmp_path / "store"), die_with_parent=True)
        options = BrokerOptions(tmp_path / "store", port=port if listen else None)
        broker = Broker.adopt_or_start(tmp_path / "broker", options, die_with_parent=True)
        try:
            assert broker.options.port == port and broker.answers()
            assert broker.pid == pid or not runs_with(pid, "nats-server")
        finally:
            broker.stop()
    finally:
        if runs_with(pid, "nats-server"):
            os.kill(pid, signal.SIGKILL)
