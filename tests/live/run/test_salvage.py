"""A run whose past is damaged, or moved away, says so when it is resumed, and ends with model, summary and the tables of what
is left: every row in them is one of the whole tables.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedtwin import open_run
from fedtwin.errors import FedtwinError
from fedtwin.learning.card import without_card
from fedtwin.live.run import events, opening
from fedtwin.live.run.ledger import first_lines, segment_path
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.tables import write_records
from tests.live.run.test_live_run import begun, deliver, dispatch, weights
from tests.live.run.test_repair import drop_line, lines_of, write_lines
from tests.live.run.test_round import SYNC, opened

EMPTY_AFTER_A_GAP = {"arrived", "staleness", "train_loss", "twin_s", "twin_j", "twin_cost"}


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.live.run.trail.SEGMENT_LINES", 20)


def played(folder: Path, uploads: int) -> None:
    """With a task given up now and then, one of which is mixed in late."""
    live = begun(folder)
    late = None
    for number in range(uploads):
        sent = dispatch(live)
        if number % 5 == 2:
            live.commit(live.core.give_up(live.core.open[sent.token], live.now_s(), "the deadline has passed", "idle"))
            late = late or sent
        else:
            assert deliver(live, sent, weights(np.sin(number), number)) is None
        if number == 7:
            assert late is not None and deliver(live, late, weights(0.5)) is None
    dispatch(live)
    live.close()


def played_in_rounds(folder: Path, rounds: int) -> None:
    live = begun(folder, **SYNC)
    for number in range(rounds):
        for sent in opened(live):
            assert deliver(live, sent, weights(float(number + sent.device), number)) is None
        assert live.close_round()
    live.close()


def finished(folder: Path) -> dict[str, Any]:
    live = opening.resume(folder)
    try:
        if not live.core.finished:
            live.commit(events.Stopped(at_s=live.now_s(), finished=True))
        return write_records(folder, live.core, live.model)
    finally:
        live.close()


def require_rows_of(part: Path, whole: Path) -> tuple[int, int]:
    """Every row of the tables is in the whole ones, but for what is empty after a gap; how many rows and tasks are left."""
    counts = []
    for name, key in (("start", "device"), ("rounds", None), ("tasks", "dispatched_s"), ("devices", "device")):
        mine = pq.read_table(part / f"{name}.parquet").to_pylist()
        theirs = pq.read_table(whole / f"{name}.parquet").to_pylist()
        keys = [key] if key is not None else ["round", "device", "clock_s"]
        by_key = {tuple(row[one] for one in keys): row for row in theirs}
        for row in mine:
            other = by_key[tuple(row[one] for one in keys)]
            for column, value in row.items():
                empty = column in EMPTY_AFTER_A_GAP or (name == "devices" and column == "cpu_hz_mean")
                same = value == other[column] or (value != value and other[column] != other[column])
                assert same or (empty and (value is None or value != value)), (name, column, value, other[column])
        counts.append(len(mine))
    return counts[1], counts[2]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.message} {record.__dict__.get('fields')}" for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("play", [played, played_in_rounds])
@pytest.mark.parametrize("line", [3, 9, 14, 17, 20, 25, 38])
def test_damage_before_a_snapshot_is_said_and_the_run_ends_with_all_that_verifies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, play: Any, line: int
) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    play(folder, 24 if play is played else 6)
    shutil.copytree(folder, whole)
    assert "incomplete" not in finished(whole)
    drop_line(folder, line)
    caplog.clear()
    opening.resume(folder).close()
    (said,) = warnings_of(caplog)
    what = "Lines 20 to 20 of " if line == 20 else "ledger.jsonl' is damaged in line " if line < 20 else "is damaged in line "
    assert "damaged before the snapshot that the run goes on from" in said and what in said
    summary = finished(folder)
    assert summary["damaged_lines"] in (1, 2) and what in summary["incomplete"]
    assert summary["model_version"] == json.loads((whole / "summary.json").read_text())["model_version"]
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    rounds, tasks = require_rows_of(folder, whole)
    assert 0 < tasks <= len(pq.read_table(whole / "tasks.parquet")) and rounds > 5
    assert open_run(folder).summary["incomplete"] == summary["incomplete"] and len(open_run(folder).rounds) == rounds


def test_segments_that_were_moved_away_are_no_damage_and_make_the_tables_whole_when_they_are_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, whole, archive = tmp_path / "run", tmp_path / "whole", tmp_path / "archive"
    played(folder, 30)
    shutil.copytree(folder, whole)
    finished(whole)
    archive.mkdir()
    gone = [segment_path(folder / "ledger.jsonl", first) for first in first_lines(folder / "ledger.jsonl")[:-3]]
    for segment in gone:
        shutil.move(segment, archive / segment.name)
    summary = finished(folder)
    assert not warnings_of(caplog) and summary["damaged_lines"] == 0
    first = first_lines(folder / "ledger.jsonl")[0]
    assert summary["incomplete"].startswith(f"The ledger is there from line {first + 1} on: the tables and means are of")
    rounds, _ = require_rows_of(folder, whole)
    assert 5 < rounds < len(pq.read_table(whole / "rounds.parquet"))
    for segment in gone:
        shutil.move(archive / segment.name, segment)
    assert "incomplete" not in finished(folder)
    assert require_rows_of(folder, whole) == require_rows_of(whole, whole)
    with pytest.raises(FedtwinError, match="this run is finished, there is nothing to resume"):
        opening.resume(folder)


def test_a_line_that_is_changed_or_moved_costs_no_other(tmp_path: Path) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    played(folder, 24)
    shutil.copytree(folder, whole)
    finished(whole)
    lines = lines_of(folder)
    for damaged, lost in (
        ([*lines[:9], lines[9].replace(b'"at_s":', b'"at_s":1'), *lines[10:]], 1),
        ([*lines[:9], lines[9], *lines[9:]], 1),
        ([*lines[:9], lines[10], lines[9], *lines[11:]], 3),
        ([*lines[:9], b"\x00\xff\n", *lines[10:]], 2),
    ):
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        write_lines(copy, damaged)
        assert finished(copy)["damaged_lines"] == lost
        require_rows_of(copy, whole)
        shutil.rmtree(copy)


def test_lines_that_are_gone_just_before_the_snapshot_are_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    played(tmp_path / "run", 24)
    ledger = tmp_path / "run" / "ledger.jsonl"
    segment = segment_path(ledger, first_lines(ledger)[-2])
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:-3]))
    opening.resume(tmp_path / "run").close()
    (said,) = warnings_of(caplog)
    assert "are not there (3 lines of the ledger cannot be used)" in said


def test_the_result_is_what_the_run_has_in_memory(tmp_path: Path) -> None:
    """Whatever has become of the newest file since it was written."""
    live: LiveRun = begun(tmp_path / "run")
    assert deliver(live, dispatch(live), weights(1.0)) is None
    model = live.model.encoded
    (tmp_path / "run" / "models" / "model-000000000001.safetensors").write_bytes(b"")
    live.commit(events.Stopped(at_s=live.now_s(), finished=True))
    write_records(tmp_path / "run", live.core, live.model)
    live.close()
    assert without_card((tmp_path / "run" / "model-plain.safetensors").read_bytes()) == model
