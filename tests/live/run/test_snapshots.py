"""A resume from a snapshot and the lines after it is a resume by the replay of everything."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtwin import open_run
from fedtwin.errors import FedtwinError
from fedtwin.live.run import events, opening
from fedtwin.live.run.ledger import LedgerReader, first_lines, read_events, segment_path
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.snapshots import snapshots_in
from fedtwin.live.run.tables import write_records
from fedtwin.live.wire.real import SystemDisk
from tests.live.run.reading_back import as_read, start_s
from tests.live.run.test_live_run import CODEC, begun, config_of, deliver, dispatch, weights
from tests.live.run.test_replay import Driver
from tests.live.run.test_trail import FEDBUFF, MOMENTUM


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.live.run.trail.SEGMENT_LINES", 20)


def ledger_of(folder: Path) -> list[events.Event]:
    return list(read_events(folder / "ledger.jsonl"))


def require_the_same(one: LiveRun, other: LiveRun) -> None:
    assert one.core.state.snapshot() == other.core.state.snapshot()
    assert one.model.encoded == other.model.encoded
    one._kept.forget_all_but(set(other._kept.models))
    assert one._kept == other._kept


def resumed_both_ways(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LiveRun:
    """From the snapshot; and by the replay of everything, in a copy of the folder."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    for snapshot in snapshots_in(copy):
        snapshot.unlink()
    monkeypatch.setattr("fedtwin.live.run.live_run.LiveRun.now_s", lambda run: run.core.last_at_s)
    by_snapshot, by_replay = opening.resume(folder), opening.resume(copy)
    monkeypatch.undo()
    require_the_same(by_replay, by_snapshot)
    assert ledger_of(folder) == ledger_of(copy)
    by_replay.close()
    shutil.rmtree(copy)
    return by_snapshot


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), steps=st.integers(20, 250))
def test_a_snapshot_and_the_lines_after_it_are_the_replay_of_everything(seed: int, steps: int) -> None:
    """Whatever has happened, and killed anywhere."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedtwin.live.run.trail.SEGMENT_LINES", 20)
        folder = Path(place, "run")
        live = opening.begin(folder, config_of(**{"fleet.channels": 2}), "main", CODEC.encode(weights(0.0)))
        driver = Driver(live, seed)
        for _ in range(steps):
            driver.step()
        live.close()
        lines = len(ledger_of(folder))
        assert len(snapshots_in(folder)) == min(lines // 20, 2)
        assert first_lines(folder / "ledger.jsonl") == list(range(1, lines + 2, 20))
        resumed_both_ways(folder, patch).close()


@pytest.mark.parametrize("rule", [{}, MOMENTUM, FEDBUFF], ids=["fedasync", "momentum", "fedbuff"])
def test_the_aggregations_state_comes_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: dict[str, object]
) -> None:
    live = begun(tmp_path / "run", **rule)
    for number in range(35):
        assert deliver(live, dispatch(live), weights(np.sin(number), number)) is None
    live.close()
    again = resumed_both_ways(tmp_path / "run", monkeypatch)
    assert deliver(again, dispatch(again), weights(1.0)) is None
    again.close()


def played(folder: Path, uploads: int) -> LiveRun:
    live = begun(folder)
    for number in range(uploads):
        assert deliver(live, dispatch(live), weights(float(number))) is None
    live.close()
    return live


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "run"
    live = played(folder, 30)
    newest, before = snapshots_in(folder)
    good = newest.read_bytes()
    for damaged in (good[:-1] + b" ", good[:100], b"", good.replace(b'"energy_j"', b'"energy_k"')):
        caplog.clear()
        newest.write_bytes(damaged)
        again = opening.resume(folder)
        assert again.core.twin == live.core.twin and again.model.encoded == live.model.encoded
        assert [record.__dict__["fields"]["snapshot"] for record in caplog.records] == [newest.name]
        again.close()
    before.write_bytes(b"")
    again = opening.resume(folder)
    assert again.core.twin == live.core.twin
    again.close()


def test_a_snapshot_of_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = played(tmp_path / "run", 30)
    monkeypatch.setattr("fedtwin.live.run.snapshots.__version__", "9.9")
    monkeypatch.setattr("fedtwin.live.run.past.State.restore", None)
    again = opening.resume(tmp_path / "run")
    assert again.core.twin == live.core.twin
    again.close()


@pytest.mark.parametrize("when", ["before the snapshot", "before the segment"])
def test_killed_where_a_segment_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    folder = tmp_path / "run"
    live = begun(folder)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        what = "live_run.write_snapshot" if when == "before the snapshot" else "ledger.Ledger.begin_segment"
        patch.setattr(f"fedtwin.live.run.{what}", killed)
        with pytest.raises(KeyboardInterrupt):
            for number in range(30):
                deliver(live, dispatch(live), weights(float(number)))
    live.close()
    before = ledger_of(folder)
    assert len(before) == 20
    again = opening.resume(folder)
    assert deliver(again, dispatch(again), weights(1.0)) is None
    again.close()
    assert ledger_of(folder)[:20] == before and first_lines(folder / "ledger.jsonl") == [1, 21]
    opening.resume(folder).close()


def test_a_snapshot_that_cannot_be_written_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedtwin.live.run.live_run.write_snapshot", full)
        live = played(tmp_path / "run", 10)
    assert first_lines(tmp_path / "run" / "ledger.jsonl") == [1] and not snapshots_in(tmp_path / "run")
    again = opening.resume(tmp_path / "run")
    assert again.core.twin == live.core.twin
    again.close()


def test_old_segments_can_be_moved_away(tmp_path: Path) -> None:
    folder, archive = tmp_path / "run", tmp_path / "archive"
    played(folder, 40)
    archive.mkdir()
    ledger = folder / "ledger.jsonl"
    for first in first_lines(ledger)[:-3]:
        segment = segment_path(ledger, first)
        shutil.move(segment, archive / segment.name)
    live = opening.resume(folder)
    assert deliver(live, dispatch(live), weights(1.0)) is None
    sentence = "are not there: until their segments are put back, neither the twin nor the tables"
    with pytest.raises(FedtwinError, match=sentence):
        open_run(folder).twin()
    live.commit(events.Stopped(at_s=live.now_s(), finished=True))
    assert write_records(folder, live.core, live.model)["incomplete"].startswith("The ledger is there from line")
    live.close()
    for segment in archive.iterdir():
        shutil.move(segment, folder / segment.name)
    again = opening.resume(folder)
    assert write_records(folder, again.core, again.model)["uploads_applied"] == 41
    again.close()
    assert open_run(folder).finished and open_run(folder).twin() == as_read(again.core.twin, start_s(folder))


def test_a_repair_cuts_off_whole_segments_and_snapshots_too(tmp_path: Path) -> None:
    """Both snapshots are damaged as well: the run goes back by the replay of everything."""
    folder = tmp_path / "run"
    played(folder, 40)
    for snapshot in snapshots_in(folder):
        snapshot.write_bytes(b"")
    ledger = folder / "ledger.jsonl"
    before = {path.name: path.read_bytes() for path in folder.glob("*.json*")}
    firsts = first_lines(ledger)
    second, third = segment_path(ledger, firsts[-2]), segment_path(ledger, firsts[-1])
    second.write_bytes(second.read_bytes().replace(b'"at_s":', b'"at_s":1', 1))
    changed = second.read_bytes()
    again = opening.resume(folder, repair=True)
    repaired = next(event for event in read_events(ledger) if isinstance(event, events.Repaired))
    assert repaired.version == again.core.version and repaired.lines > 20 and repaired.uploads > 0
    aside = folder / repaired.folder
    kept = {path.name: path.read_bytes() for path in aside.glob("*.json*")}
    assert kept[second.name] == changed
    assert kept[third.name] == before[third.name] and not third.exists()
    assert deliver(again, dispatch(again), weights(1.0)) is None
    again.close()
    opening.resume(folder).close()


def test_a_segment_that_cannot_be_begun_goes_on_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snapshot was written: whoever reads from that must not look for the lines after it in a segment of their own."""
    folder, usual = tmp_path / "run", SystemDisk.write_whole

    def full(self: SystemDisk, path: Path, data: bytes, *, fsync: bool = True) -> None:
        if path.name.startswith("ledger-"):
            raise OSError(28, "No space left on device")
        usual(self, path, data, fsync=fsync)

    with monkeypatch.context() as patch:
        patch.setattr(SystemDisk, "write_whole", full)
        live = played(folder, 8)
    assert first_lines(folder / "ledger.jsonl") == [1] and len(ledger_of(folder)) > 30 and snapshots_in(folder)
    again = resumed_both_ways(folder, monkeypatch)
    assert again.core.version == live.core.version == 8
    again.close()


def test_a_snapshot_that_the_ledger_does_not_lead_to_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = played(tmp_path / "run", 30)
    other = begun(tmp_path / "other")
    for number in range(30):
        assert deliver(other, dispatch(other), weights(-float(number))) is None
    other.close()
    newest, before = snapshots_in(tmp_path / "run")
    shutil.copy(tmp_path / "other" / newest.name, newest)  # of another run
    again = opening.resume(tmp_path / "run")
    assert again.core.twin == live.core.twin and again.model.encoded == live.model.encoded
    again.close()
    said = [record.__dict__["fields"] for record in caplog.records]
    assert {"snapshot": newest.name, "reason": "the ledger does not lead to it"} in said
    newest.rename(newest.with_name("snapshot-000000009000.json"))  # newer than the ledger
    again = opening.resume(tmp_path / "run")
    assert again.core.twin == live.core.twin
    again.close()
    assert before.exists()


def test_a_ledger_that_grows_while_its_end_is_looked_for_has_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    live = begun(folder)
    reader, usual = LedgerReader(folder / "ledger.jsonl"), LedgerReader._rest
    lines = len(list(reader.read()))

    def late(self: LedgerReader) -> Iterator[events.Event]:
        yield from usual(self)
        if live.core.version < 12:  # a segment ends, and the next one begins, just after its end was seen
            for _ in range(6):
                assert deliver(live, dispatch(live), weights(1.0)) is None

    monkeypatch.setattr(LedgerReader, "_rest", late)
    while live.core.version < 12 or lines < live._kept.lines:
        lines += len(list(reader.read()))
    live.close()
    assert lines == len(ledger_of(folder)) > 40
