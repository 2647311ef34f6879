"""Who has sent more than it was asked for is found by the counters of our broker, and cut."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedtwin.live.broker.monitor import Connection
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.traffic import FLOOD, Traffic
from fedtwin.live.wire.nats_connection import close, connect
from fedtwin.live.wire.real import REAL
from tests.live.brokers import running
from tests.live.floods import measured
from tests.live.run.test_live_run import begun, deliver, dispatch, weights


class NoBroker:
    """Asked for nothing in here."""

    has_certificates = False

    def connections(self) -> list[Connection] | None:
        return None

    def keep_out(self, cids: object, names: object, seconds: float) -> int:
        raise AssertionError(cids, names, seconds)

    def unheard(self, subjects: object) -> None:
        raise AssertionError(subjects)

    def revoke(self, name: str) -> bool:
        raise AssertionError(name)

    def reinstate(self, name: str) -> bool:
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


def test_who_has_no_name_has_an_allowance_of_its_own(tmp_path: Path) -> None:
    """One that floods does not cut the others; those that came and went have one together."""
    live = begun(tmp_path / "run")
    traffic = Traffic(Context(live), NoBroker())
    assert not traffic.flooders([Connection(1, "", 0, 0), Connection(2, "", 0, 0)], 1.0)
    many = [Connection(1, "", 50_000, 0), Connection(2, "", 10, 0)]
    assert set(traffic.flooders(many, 0.25)) == {"#1"}
    gone = [Connection(cid, "", 1500, 0, is_open=False) for cid in (3, 4)]
    assert set(traffic.flooders([Connection(2, "", 20, 0), *gone], 0.25)) == {""}
    live.close()


class Scripted(NoBroker):
    """A plain broker, or one with certificates, on which somebody floods once; what it is told is written down."""

    def __init__(self, *, tls: bool) -> None:
        self.tls = self.has_certificates = tls
        self.looks, self.told = 0, list[tuple[str, object]]()

    def connections(self) -> list[Connection] | None:
        self.looks += 1
        if self.looks > 12:
            raise RuntimeError("enough")
        flooder = Connection(1, "a", 0 if self.looks == 1 else 10**6, 0, is_open=self.looks < 3)
        return [flooder, Connection(2, "b", self.looks, 0), Connection(100 + self.looks, "a", 0, 0, is_open=not self.tls)]

    def keep_out(self, cids: object, names: object, seconds: float) -> int:
        self.told.append(("keep out", (cids, names)))
        return int(seconds)

    def unheard(self, subjects: object) -> None:
        if subjects != next((said for what, said in reversed(self.told) if what == "unheard"), []):
            self.told.append(("unheard", subjects))

    def revoke(self, name: str) -> bool:
        if self.tls:
            self.told.append(("revoke", name))
        return self.tls


@pytest.mark.parametrize("tls", [True, False])
def test_who_is_cut_is_cut_once_and_then_kept_out_cheaply(
    tmp_path: Path, tls: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fedtwin.live.server.traffic.LOOK_EVERY_S", 0.001)
    live, broker = begun(tmp_path / "run"), Scripted(tls=tls)
    context = Context(live)
    anew: list[bool] = []
    context.clock, context.core = REAL.clock, live.core
    context.transport = SimpleNamespace(connect_anew=lambda: anew.append(context.ask_after > REAL.clock.monotonic_s()))
    with pytest.raises(RuntimeError, match="enough"):
        asyncio.run(Traffic(context, broker).watch_for_ever())
    assert anew == [True], "once, and nobody is asked meanwhile"
    assert live.core.is_quarantined("a") and not live.core.is_quarantined("b")
    floods = [record for record in caplog.records if "floods the broker" in record.getMessage()]
    assert len(floods) == 1
    assert not any("are cut as flooders" in record.getMessage() for record in caplog.records), "one of three"
    if tls:
        assert broker.told == [("revoke", "a")], "a broker that reloads has other things to do"
    else:
        assert broker.told[0] == ("unheard", ["fedtwin.main.*.a"]) and broker.told[1] == ("keep out", ([1, 102], {"a"}))
        assert [what for what, _ in broker.told].count("unheard") == 1
        assert broker.told[-1] == ("keep out", ([112], {"a"}))
    live.close()


def test_a_fleet_of_flooders_is_said_to_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fedtwin.live.server.traffic.LOOK_EVERY_S", 0.001)

    class Everybody(Scripted):
        def connections(self) -> list[Connection] | None:
            super().connections()
            return [Connection(number, name, 10**6 * (self.looks - 1), 0) for number, name in enumerate("ab", 1)]

    live = begun(tmp_path / "run")
    context = Context(live)
    context.clock, context.core = REAL.clock, live.core
    context.transport = SimpleNamespace(connect_anew=lambda: None)
    with pytest.raises(RuntimeError, match="enough"):
        asyncio.run(Traffic(context, Everybody(tls=True)).watch_for_ever())
    said = [record.getMessage() for record in caplog.records if "are cut as flooders" in record.getMessage()]
    assert len(said) == 1 and said[0].startswith("2 of 3 devices are cut as flooders") and "fedtwin admin release" in said[0]
    live.close()


def test_who_was_cut_before_a_resume_stays_out_until_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.live.server.traffic.LOOK_EVERY_S", 0.001)
    live, broker = begun(tmp_path / "run"), Scripted(tls=False)
    live.quarantine("c", FLOOD)
    live.quarantine("b", "norm: too much")
    context = Context(live)
    context.clock = REAL.clock
    traffic = Traffic(context, broker)
    broker.looks = 11
    with pytest.raises(RuntimeError, match="enough"):
        asyncio.run(traffic.watch_for_ever())
    assert broker.told[0] == ("unheard", ["fedtwin.main.*.c"]) and traffic.cut == {"c"}
    live.release("c")
    assert traffic.cut == set()
    broker.looks = 11
    with pytest.raises(RuntimeError, match="enough"):
        asyncio.run(traffic.watch_for_ever())
    assert broker.told[-1] == ("unheard", []), "it is heard again"
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
            kept_out = asyncio.create_task(asyncio.to_thread(broker.keep_out, [found["d0"].cid], {"d0", ""}, 1.5))
            end = time.monotonic() + 30.0
            while not client.stats["reconnects"]:
                assert time.monotonic() < end, "the connection was not ended"
                await asyncio.sleep(0.01)
            assert await kept_out >= 2, "it came again, and was ended as soon as it did"
            assert other.stats["reconnects"] == 0
            heard = await other.subscribe("fedtwin.main.hello.*")
            broker.unheard(["fedtwin.main.*.d0"])
            await asyncio.sleep(0.5)
            end = time.monotonic() + 30.0
            while not client.is_connected:  # else what it publishes waits, and comes when it is heard again
                assert time.monotonic() < end, "it does not come back"
                await asyncio.sleep(0.01)
            await client.publish("fedtwin.main.hello.d0", b"no")
            await client.flush()
            await other.publish("fedtwin.main.hello.d1", b"yes")
            assert (await heard.next_msg(30.0)).data == b"yes" and other.stats["reconnects"] == 0
            broker.unheard([])
            await asyncio.sleep(0.5)
            await client.publish("fedtwin.main.hello.d0", b"heard again")
            assert (await heard.next_msg(30.0)).data == b"heard again"
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
    assert flood.flooder["cuts"] >= 1 and flood.during.broker_mb < 500 and flood.after.broker_mb < 500
    assert flood.left > 0.8, str(flood)
