"""Who has sent more than it was asked for is found by the counters of our broker, and cut."""

import asyncio
import time
from pathlib import Path

import pytest

from fedtwin.live.broker.monitor import Connection
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.traffic import Traffic
from fedtwin.live.wire.nats_connection import close, connect
from fedtwin.live.wire.real import REAL
from tests.live.brokers import running
from tests.live.floods import measured
from tests.live.run.test_live_run import begun, deliver, dispatch, weights


class NoBroker:
    """Asked for nothing in here."""

    def connections(self) -> list[Connection] | None:
        return None

    def kick(self, cid: int) -> bool:
        raise AssertionError(cid)

    def deny(self, subjects: object) -> None:
        raise AssertionError(subjects)

    def revoke(self, name: str) -> bool:
        raise AssertionError(name)


class Context(EdgeContext):
    def __init__(self, run: LiveRun) -> None:
        self.run, self.ports, self.too_fast = run, REAL, set()


def test_counters_are_held_against_tasks_and_added_up_by_name(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    traffic = Traffic(Context(live), NoBroker())
    assert not traffic.flooders([Connection(1, "edge", 10**9, 10**12), Connection(2, "a", 100, 1000)], 1.0)
    for turn in range(2, 40):  # as many messages as a device needs for its tasks
        assert deliver(live, dispatch(live), weights(0.0)) is None
        honest = [Connection(number, name, 40 * turn, 1000 * turn) for number, name in enumerate("abc", 2)]
        assert not traffic.flooders(honest, 0.01)
    many = [Connection(9, "x", 2000, 0), Connection(10, "x", 2000, 0), Connection(11, "y", 1500, 0)]
    assert set(traffic.flooders([*honest, *many], 1.0)) == {"x"}, "two connections, one name"
    assert set(traffic.flooders([*honest, Connection(12, "x", 1, 0)], 0.1)) == {"x"}, "a new connection is no new name"
    assert set(traffic.flooders([*honest, Connection(13, "z", 1, 10**9)], 0.1)) == {"z"}, "bytes count too"
    live.close()


def test_what_was_sent_before_the_edge_server_came_is_no_flood(tmp_path: Path) -> None:
    """Its broker has outlived it, and so have the connections of an honest fleet."""
    live = begun(tmp_path / "run")
    traffic = Traffic(Context(live), NoBroker())
    fleet = [Connection(2, "a", 10**6, 10**12), Connection(3, "b", 10**5, 10**9)]
    assert traffic.flooders(fleet, 0.25) == {} == traffic.flooders(fleet, 0.25)
    live.close()


def test_who_comes_anew_for_every_few_messages_is_counted(tmp_path: Path) -> None:
    async def scene() -> None:
        with running(tmp_path) as broker:
            traffic = Traffic(Context(live), broker)
            assert traffic.flooders(broker.connections() or [], 0.25) == {}
            for _ in range(30):
                client = await connect([broker.url], name="x", inbox="x", credentials=None, insecure=False)
                for _ in range(100):
                    await client.publish("fedtwin.main.hello.x", b"")
                await client.flush()
                await close(client)
            end = time.monotonic() + 30.0
            while not (found := traffic.flooders(broker.connections() or [], 0.0)):
                assert time.monotonic() < end, "nobody is found"
                await asyncio.sleep(0.05)
            assert set(found) == {"x"}

    live = begun(tmp_path / "run")
    asyncio.run(scene())
    live.close()


def test_our_broker_tells_what_its_connections_sent_and_ends_one(tmp_path: Path) -> None:
    async def scene() -> None:
        with running(tmp_path) as broker:
            client = await connect([broker.url], name="d0", inbox="d0", credentials=None, insecure=False)
            other = await connect([broker.url], name="d1", inbox="d1", credentials=None, insecure=False)
            for _ in range(30):
                await client.publish("fedtwin.main.hello.d0", b"x" * 100)
            await client.flush()
            end = time.monotonic() + 30.0
            while (found := {one.name: one for one in broker.connections() or []})["d0"].messages < 30:
                assert time.monotonic() < end, "it does not count"
                await asyncio.sleep(0.01)
            assert (found["d0"].messages, found["d0"].size_bytes) == (30, 3000) and found["d1"].messages == 0
            assert broker.kick(found["d0"].cid)
            end = time.monotonic() + 30.0
            while not client.stats["reconnects"]:
                assert time.monotonic() < end, "the connection was not ended"
                await asyncio.sleep(0.01)
            assert other.stats["reconnects"] == 0
            heard = await other.subscribe("fedtwin.main.hello.*")
            broker.deny(["fedtwin.main.*.d0"])
            while "permissions violation" not in str(client.last_error).lower():
                assert time.monotonic() < end, "the subject was not denied"
                await client.publish("fedtwin.main.hello.d0", b"no")
                await asyncio.sleep(0.02)
            await other.publish("fedtwin.main.hello.d1", b"yes")
            while (message := await heard.next_msg(30.0)).data == b"no":
                pass
            assert message.data == b"yes" and other.stats["reconnects"] == 0
            assert (tmp_path / "broker" / "nats.conf").stat().st_mode & 0o077 == 0, "the secret is in there"
            await close(client)
            await close(other)

    asyncio.run(scene())


@pytest.mark.slow
@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("kind", ["hellos", "ids"])
def test_a_flooder_is_cut_and_the_others_go_on(tmp_path: Path, kind: str, tls: bool) -> None:
    flood = measured(tmp_path, kind, tls=tls)
    log = (tmp_path / "edge.log").read_text(encoding="utf-8")
    assert ("a device floods the broker and is revoked  device=hostile" in log) == tls
    assert ("a connection floods the broker and is cut  device=hostile" in log) == (not tls)
    assert flood.flooder["cuts"] >= 1 and max(flood.broker_mb) < 500
    assert flood.after > 0.5 * flood.before, flood
