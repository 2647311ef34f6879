"""The ledger at the broker: what it does not have has not happened, however it came to be missing there."""

import asyncio
from pathlib import Path

import pytest

from fedtwin.errors import FedtwinError, ServedElsewhereError, TakenOverError
from fedtwin.live.broker.process import Broker
from fedtwin.live.run import events
from fedtwin.live.run.following import Follower, attached, files_there
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.opening import resume
from fedtwin.live.run.past import has_ledger
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.uploads import Uploads
from fedtwin.live.wire.box import Box
from fedtwin.live.wire.nats_transport import NatsTransport
from fedtwin.live.wire.ports import Transport
from fedtwin.live.wire.protocol import TOKEN_HEADER
from fedtwin.live.wire.tape import Tape
from tests.live.plant import ledger_of
from tests.live.run.test_live_run import CODEC, begun, deliver, dispatch, done_of, weights
from tests.live.server.test_uploads import played
from tests.live.wire.benches import MemoryBench


def at_the_broker(transport: Transport) -> tuple[Tape, Box]:
    return Tape(transport, "fedtwin-main-ledger", "fedtwin.main.ledger"), Box(transport, "fedtwin-main-files")


async def written_there(live: LiveRun, transport: Transport, *, new: bool = True) -> "asyncio.Task[None]":
    stream = await attached(live.folder, *at_the_broker(transport), new=new)
    live.write_to(stream)
    return asyncio.create_task(stream.write_for_ever())


async def followed(folder: Path, transport: Transport) -> None:
    follower = Follower(folder, *at_the_broker(transport))
    await follower.catch_up()
    await follower.fetch_files()


@pytest.mark.parametrize("aggregation", ["fedasync", "fedbuff"])
def test_another_folder_follows_and_is_the_same_run_and_the_first_fails_its_next_append(
    tmp_path: Path, aggregation: str
) -> None:
    async def scene(transport: NatsTransport, broker: Broker) -> None:  # noqa: ARG001
        first, second = tmp_path / "run", tmp_path / "second"
        live = begun(first, **{"learning.aggregation": aggregation, "learning.buffer_size": 2})
        writing = await written_there(live, transport)
        sent = [dispatch(live) for _ in range(3)]
        assert deliver(live, sent[0], weights(1.0, 3)) is None
        await live.settled()
        await followed(second, transport)
        assert ledger_of(second) == ledger_of(first)
        other = resume(second)
        assert other.model.encoded == live.model.encoded
        others = await written_there(other, transport, new=False)
        assert deliver(other, sent[1], weights(2.0, 4)) is None
        await other.settled()

        before = ledger_of(first)
        assert deliver(live, sent[1], weights(-9.0, 9)) is None  # the first does not know yet: nobody was told either
        with pytest.raises(TakenOverError, match="was written by another edge server"):
            await live.settled()
        with pytest.raises(TakenOverError):
            await writing
        with pytest.raises(TakenOverError):
            dispatch(live)
        assert ledger_of(first) == before
        live.close()

        assert deliver(other, sent[2], weights(3.0, 5)) is None
        await other.settled()
        others.cancel()
        other.close()
        assert len([name for name in await Box(transport, "fedtwin-main-files").names() if "model-000000000002" in name]) == 2
        await followed(first, transport)
        again = resume(first)
        assert again.model.encoded == other.model.encoded and ledger_of(first)[:-1] == ledger_of(second)
        again.close()

    played(tmp_path, scene)


def test_an_answer_that_is_lost_is_not_written_twice_and_a_store_that_is_lost_is_filled_from_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(transport: NatsTransport, broker: Broker) -> None:  # noqa: ARG001
        live, (tape, box) = begun(tmp_path / "run"), at_the_broker(transport)
        usual, lost = Tape.append, [True, False, True]

        async def append(self: Tape, data: bytes, **more: object) -> int:
            number = await usual(self, data, **more)  # type: ignore[arg-type]
            if lost and lost.pop():
                raise TimeoutError
            return number

        usual_put, unheard = Box.put, [True]

        async def put(self: Box, name: str, data: bytes) -> None:
            if unheard:
                unheard.pop()
                raise TimeoutError
            await usual_put(self, name, data)

        monkeypatch.setattr(Tape, "append", append)
        monkeypatch.setattr(Box, "put", put)
        writing = await written_there(live, transport)
        assert deliver(live, dispatch(live), weights(1.0)) is None
        await live.settled()
        assert not lost and (await tape.last()).number == len(ledger_of(live.folder)) and len(await tape.read(0, 100)) > 7
        kinds = sorted(name.partition("-")[0].partition(".")[0] for name in await box.names())
        assert kinds == ["config", "model", "model", "upload"] and not unheard, "the average is had back from the upload"
        with pytest.raises(ServedElsewhereError, match=r"not finished: .*--standby, or .*--run NAME"):
            await attached(live.folder, tape, box, new=True)

        await tape.remove()
        await transport.client.jetstream().delete_object_store("fedtwin-main-files")
        live.commit(events.Stopped(at_s=live.now_s(), finished=True))
        with pytest.raises(FedtwinError, match="is gone from the broker: go on with --resume"):
            await writing
        live.close()
        live = resume(tmp_path / "run")
        writing = await written_there(live, transport, new=False)
        live.commit(events.Stopped(at_s=live.now_s(), finished=True))
        await live.settled()
        assert (await tape.last()).number == len(ledger_of(live.folder))
        assert set(await files_there(tape, box)) == {"config.toml", *(path.name for path in live.folder.glob("models/*"))}
        writing.cancel()
        live.close()
        following = begun(tmp_path / "next")
        await attached(following.folder, tape, box, new=True)
        following.close()
        assert (await tape.last()).number == 0 and await box.names() == []

    played(tmp_path, scene)


def test_a_follower_has_the_same_lines_in_segments_and_takes_over_from_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("trail", "following"):
        monkeypatch.setattr(f"fedtwin.live.run.{module}.SEGMENT_LINES", 10)

    async def scene() -> None:
        transport = await bench.connect("edge")
        first, second = tmp_path / "run", tmp_path / "second"
        live = begun(first)
        writing = await written_there(live, transport)
        for number in range(13):
            assert deliver(live, dispatch(live), weights(float(number))) is None
            await live.settled()
            if number == 5:
                await followed(second, transport)
        await followed(second, transport)
        assert lines_of(second) == lines_of(first) and len(lines_of(first)) > 3
        assert {path.name for path in second.glob("snapshot-*")} == {path.name for path in first.glob("snapshot-*")}
        old = sorted(second.glob("ledger*.jsonl"), key=lambda path: (len(path.name), path.name))[:-2]
        for path in old:  # moved away: nobody needs them
            path.unlink()
        other = resume(second)
        assert other.core.state.snapshot() != live.core.state.snapshot(), "it has a line more: resumed"
        assert other.model.encoded == live.model.encoded and other.core.applied == live.core.applied == 13
        others = await written_there(other, transport, new=False)
        assert deliver(other, dispatch(other), weights(9.0)) is None
        await other.settled()
        with pytest.raises(TakenOverError):
            for _ in range(30):  # over the end of a segment, with a snapshot that never happened
                live.refuse("a", "result", f"size: {_}")
            await live.settled()
        with pytest.raises(TakenOverError):
            await writing
        live.close()
        others.cancel()
        other.close()
        await followed(first, transport)
        assert lines_of(second).items() <= lines_of(first).items() and len(lines_of(second)) == 2
        again = resume(first)
        assert again.model.encoded == other.model.encoded
        again.close()
        await transport.close()

    bench = MemoryBench()
    bench.play(scene)


def lines_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("ledger*.jsonl"))}


def test_a_broker_with_an_older_store_is_told_and_filled_from_the_folder(tmp_path: Path) -> None:
    """It had lines that the folder has, and uploads were acknowledged for them."""

    async def scene(transport: NatsTransport, broker: Broker) -> None:  # noqa: ARG001
        live, (tape, _) = begun(tmp_path / "run"), at_the_broker(transport)
        writing = await written_there(live, transport)
        for value in range(3):
            assert deliver(live, dispatch(live), weights(float(value))) is None
        await live.settled()
        lines, model = [entry.data for entry in await tape.read(0, 100)], live.model.encoded
        await tape.remove()
        await tape.make()
        for number, line in enumerate(lines[:5]):
            await tape.append(line, after=number)
        live.commit(events.Stopped(at_s=live.now_s(), finished=False))
        with pytest.raises(FedtwinError, match=rf"has 5 lines, and {len(lines)} had been written: .* go on with --resume"):
            await writing
        live.close()

        await followed(tmp_path / "run", transport)
        again = resume(tmp_path / "run")
        assert again.model.encoded == model and again.core.applied == 3
        writing = await written_there(again, transport, new=False)
        await again.settled()
        assert [entry.data for entry in await tape.read(0, 100)][: len(lines)] == lines
        writing.cancel()
        again.close()

    played(tmp_path, scene)


def test_a_tape_that_somebody_has_emptied_is_said_and_the_folder_fills_a_new_one(tmp_path: Path) -> None:
    """A standby said that there was no ledger yet, and waited for one for ever."""

    async def scene(transport: NatsTransport, broker: Broker) -> None:  # noqa: ARG001
        live, (tape, _) = begun(tmp_path / "run"), at_the_broker(transport)
        js = transport.client.jetstream()
        await js.add_stream(name=tape.name, subjects=[tape.subject])  # of an older fedtwin, which let it be purged
        writing = await written_there(live, transport)
        assert deliver(live, dispatch(live), weights(1.0)) is None
        await live.settled()
        lines = [entry.data for entry in await tape.read(0, 100)]
        writing.cancel()
        live.close()
        await js.purge_stream(tape.name)
        for folder in ("standby", "run"):
            with pytest.raises(FedtwinError, match=r"has been emptied: .* \(nats stream rm fedtwin-main-ledger\)"):
                await followed(tmp_path / folder, transport)
        with pytest.raises(FedtwinError, match="has been emptied"):
            await attached(tmp_path / "run", *at_the_broker(transport), new=False)

        await tape.remove()
        again = resume(tmp_path / "run")
        writing = await written_there(again, transport, new=False)
        await again.settled()
        assert [entry.data for entry in await tape.read(0, 100)][: len(lines)] == lines
        writing.cancel()
        again.close()

    played(tmp_path, scene)


def test_a_tape_that_is_empty_costs_the_folder_nothing(tmp_path: Path) -> None:
    """The edge server was killed when it had made tape and box, and had written nothing there."""

    async def scene() -> None:
        transport = await bench.connect("edge")
        live = begun(tmp_path / "run")
        assert deliver(live, dispatch(live), weights(1.0)) is None
        live.close()
        for shelf in at_the_broker(transport):
            await shelf.make()
        await followed(tmp_path / "run", transport)
        again = resume(tmp_path / "run")
        assert again.model.encoded == live.model.encoded
        again.close()
        await transport.close()

    bench = MemoryBench()
    bench.play(scene)


@pytest.mark.parametrize("left", [b"", b'{"kind":"beg'], ids=["nothing", "half a line"])
def test_a_folder_that_was_left_before_its_first_line_was_whole_follows_anew(tmp_path: Path, left: bytes) -> None:
    """It was said to be of another run, for ever."""

    async def scene() -> None:
        transport = await bench.connect("edge")
        live = begun(tmp_path / "run")
        writing = await written_there(live, transport)
        await live.settled()
        second = tmp_path / "second"
        second.mkdir()
        (second / "ledger.jsonl").write_bytes(left)
        assert not has_ledger(second)
        await followed(second, transport)
        assert lines_of(second) == lines_of(tmp_path / "run")
        writing.cancel()
        live.close()
        await transport.close()

    bench = MemoryBench()
    bench.play(scene)


def test_a_first_that_wakes_up_after_a_takeover_mixes_in_and_acknowledges_nothing(tmp_path: Path) -> None:
    """It believes its lease for a moment, as after SIGSTOP and SIGCONT: its first append fails, and nothing goes outside."""

    async def scene() -> None:
        transport = await bench.connect("edge")
        live = begun(tmp_path / "run")
        writing = await written_there(live, transport)
        sent = dispatch(live)
        context, name = EdgeContext(live, transport), live.core.names[sent.device]
        uploads = Uploads(context)
        await uploads.open()
        await live.settled()
        await followed(tmp_path / "second", transport)
        other = resume(tmp_path / "second")
        others = await written_there(other, transport, new=False)
        await other.settled()

        body = CODEC.encode(weights(1.0))
        await transport.store(context.subjects.upload(name), body, headers={TOKEN_HEADER: sent.token})
        await transport.store(context.subjects.result(name), done_of(sent).encoded())
        with pytest.raises(TakenOverError):
            await writing
        await asyncio.sleep(10.0)
        assert isinstance(uploads.trouble, TakenOverError)
        assert await transport.waiting(context.subjects.stream) == 2, "the other one gets them"
        assert not [event for event in ledger_of(live.folder) if event["kind"] == "applied"]
        live.close()
        theirs = Uploads(EdgeContext(other, transport))
        await theirs.open()
        await asyncio.sleep(1.0)
        assert other.core.applied == 1 and await transport.waiting(context.subjects.stream) == 0
        others.cancel()
        other.close()
        await transport.close()

    bench = MemoryBench()
    bench.play(scene)
