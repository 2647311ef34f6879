"""A ledger in segments is read as one, also while it grows; what is missing of it is a sentence."""

import errno
import os
from pathlib import Path

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.live.run import events
from fedtwin.live.run.ledger import DamageError, Ledger, LedgerReader, cut_torn_line, first_lines, read_events, segment_path

EVENTS = [events.Passed(at_s=float(number), round=number) for number in range(9)]


def written(path: Path, *, segments_of: int) -> None:
    ledger = Ledger(path, fsync=False)
    for number, event in enumerate(EVENTS):
        if number and number % segments_of == 0:
            ledger.begin_segment(segment_path(path, number + 1))
        ledger.append(event)
    ledger.close()


def test_segments_are_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    written(path, segments_of=3)
    names = ["ledger-000000000004.jsonl", "ledger-000000000007.jsonl", "ledger.jsonl"]
    assert sorted(file.name for file in tmp_path.iterdir()) == names and first_lines(path) == [1, 4, 7]
    assert list(read_events(path)) == EVENTS
    written(tmp_path / "whole.jsonl", segments_of=100)
    lines = b"".join(segment_path(path, first).read_bytes() for first in (1, 4, 7))
    assert lines == (tmp_path / "whole.jsonl").read_bytes(), "chained from one segment to the next"


def test_a_reader_follows_into_the_next_segment(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    read: list[events.Event] = []
    ledger = Ledger(path, fsync=False)
    reader = LedgerReader(path)
    for number, event in enumerate(EVENTS):
        if number in (3, 4, 7):
            ledger.begin_segment(segment_path(path, number + 1))
            read += reader.read()
        ledger.append(event)
        if number % 2:
            read += reader.read()
    read += reader.read()
    assert read == EVENTS and (reader.line, reader.segment) == (9, segment_path(path, 8))
    ledger.close()


def test_a_reader_begins_where_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    written(path, segments_of=3)
    reader = LedgerReader(path)
    digits = ["", *(reader.digits for _ in reader.read())]
    assert list(LedgerReader(path, line=3, digits=digits[3]).read()) == EVENTS[3:]
    assert list(LedgerReader(path, line=9, digits=digits[9]).read()) == [], "the next segment is not there yet"
    with pytest.raises(DamageError, match=r"ledger-000000000004\.jsonl' is damaged in line 4: it is not as it was written"):
        list(LedgerReader(path, line=3, digits=digits[2]).read())


def test_segments_that_are_not_there_are_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    written(path, segments_of=3)
    middle = segment_path(path, 4).read_bytes()
    segment_path(path, 4).unlink()
    sentence = "are not there: until their segments are put back, neither the twin nor the tables of this run can be drawn"
    with pytest.raises(DamageError, match=rf"Lines 4 to 6 of '.*ledger\.jsonl' {sentence}"):
        list(read_events(path))
    path.unlink()
    with pytest.raises(DamageError, match=rf"Lines 1 to 6 of '.*ledger\.jsonl' {sentence}"):
        list(read_events(path))
    segment_path(path, 4).write_bytes(middle)
    with pytest.raises(DamageError, match=rf"Lines 1 to 3 of '.*ledger\.jsonl' {sentence}"):
        list(read_events(path))


def test_a_torn_line_is_cut_off_the_last_segment(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    written(path, segments_of=3)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with segment_path(path, 7).open("ab") as file:
        file.write(b'{"kind":"pass')
    assert list(read_events(path)) == EVENTS
    cut_torn_line(path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("what", ["removed", "moved", "replaced", "emptied"])
def test_a_ledger_that_is_no_longer_in_its_place_takes_no_line(tmp_path: Path, what: str) -> None:
    """What is written there would be acknowledged, and nowhere."""
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, fsync=False)
    ledger.append(EVENTS[0])
    lines = path.read_bytes()
    if what == "removed":
        path.unlink()
    elif what == "emptied":
        path.write_bytes(b"")
    else:
        path.rename(tmp_path / "moved")
    if what == "replaced":
        path.write_bytes(lines)
    with pytest.raises(FedtwinError, match=r"The ledger '.*ledger\.jsonl' cannot be written: (No such file|it was replaced)"):
        ledger.append(EVENTS[1])
    ledger.close()
    left = {"moved": tmp_path / "moved", "replaced": path, "emptied": path}.get(what)
    assert left is None or left.read_bytes() in (b"", lines)


@pytest.mark.parametrize("torn", [True, False])
def test_a_ledger_that_may_only_be_read_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bool) -> None:
    path = tmp_path / "ledger.jsonl"
    written(path, segments_of=100)
    path.write_bytes(path.read_bytes() + b"{" * torn)

    def refused(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(os, "truncate", refused)
    sentence = r"The ledger '.*ledger\.jsonl' cannot be written: Read-only file system"
    with pytest.raises(FedtwinError, match=sentence):
        Ledger(path, fsync=False)
    if torn:
        with pytest.raises(FedtwinError, match=sentence):
            cut_torn_line(path)
    else:
        cut_torn_line(path)
