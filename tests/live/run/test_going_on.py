"""What a run that is opened again must have: an end, the models of its tasks, its own settings; a finished run stays so."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from fedtwin import open_run
from fedtwin.errors import FedtwinError
from fedtwin.live.run import chain, events, opening
from fedtwin.live.run.ledger import read_events
from fedtwin.live.run.tables import write_records
from tests.live.run.test_live_run import begun, deliver, dispatch, weights
from tests.live.run.test_repair import flipped, goes_on, lines_of, place_of, played, write_lines
from tests.live.run.test_round import SYNC, opened
from tests.live.run.test_trail import MOMENTUM

FINISHED = "this run is finished, there is nothing to resume"


def finished(folder: Path, uploads: int = 5) -> dict[str, Any]:
    played(folder, uploads)
    live = opening.resume(folder)
    live.commit(events.Stopped(at_s=live.now_s(), finished=True))
    summary = write_records(folder, live.core, live.model)
    live.close()
    return summary


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


def test_a_finished_run_whose_newest_model_is_damaged_stays_finished(tmp_path: Path) -> None:
    finished(tmp_path / "run")
    newest = tmp_path / "run" / "models" / "model-000000000005.safetensors"
    good = newest.read_bytes()
    flipped(newest, -1)
    with pytest.raises(FedtwinError, match=FINISHED):
        opening.resume(tmp_path / "run", repair=True)
    assert newest.read_bytes() == good and open_run(tmp_path / "run").finished
    assert (tmp_path / "run" / "damaged-1" / newest.name).read_bytes() != good
    with pytest.raises(FedtwinError, match=FINISHED):
        opening.resume(tmp_path / "run", repair=True)
    assert not (tmp_path / "run" / "damaged-2").exists()


@pytest.mark.parametrize("gone", [0, 1, 4])
def test_a_finished_run_is_not_opened_again_because_its_ledger_is_damaged(tmp_path: Path, gone: int) -> None:
    """In the middle, or at its end."""
    finished(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    write_lines(tmp_path / "run", lines[:-gone] if gone else [*lines[:12], *lines[13:]])
    before = files_of(tmp_path / "run")
    for repair in (False, True):
        with pytest.raises(FedtwinError, match=r"the run is finished, and its records are as they were written: there is noth"):
            opening.resume(tmp_path / "run", repair=repair)
        assert files_of(tmp_path / "run") == before
    (tmp_path / "run" / "summary.json").unlink()
    opening.resume(tmp_path / "run", repair=True).close()


@pytest.mark.parametrize(
    "name", ["rounds.parquet", "summary.json", "model.safetensors", "model-plain.safetensors", "SHA256SUMS"]
)
def test_damaged_records_of_a_finished_run_are_written_anew(tmp_path: Path, name: str) -> None:
    finished(tmp_path / "run")
    before = files_of(tmp_path / "run")
    flipped(tmp_path / "run" / name, 40)
    with pytest.raises(FedtwinError, match=r"is finished, and .*: fedtwin edge --resume .* --repair writes its records anew"):
        opening.resume(tmp_path / "run")
    live = opening.resume(tmp_path / "run", repair=True)
    assert live.core.finished and lines_of(tmp_path / "run")[-1].count(b'"stopped"')
    write_records(tmp_path / "run", live.core, live.model)
    live.close()
    after = files_of(tmp_path / "run")
    assert {path: data for path, data in after.items() if path.parts[0] != "damaged-1"} == before


def test_a_finished_run_whose_model_is_lost_is_open_again_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    finished(folder)
    flipped(folder / "models" / "model-000000000005.safetensors", -1)
    (folder / "model-plain.safetensors").unlink()
    live = opening.resume(folder, repair=True)
    assert live.core.version == 4 and not live.core.finished
    assert "the run was finished, and is open again: its end cannot be verified" in warned(caplog)
    assert not open_run(folder).finished and (folder / "damaged-1" / "summary.json").exists()
    goes_on(live)


@pytest.mark.parametrize("cut", ["opened", "applied"])
def test_a_synchronous_ledger_whose_end_is_missing_is_told_by_the_files(tmp_path: Path, cut: str) -> None:
    folder = tmp_path / "run"
    live = begun(folder, **SYNC)
    for sent in opened(live):
        assert deliver(live, sent, weights(1.0)) is None
    assert live.close_round()
    if cut == "applied":
        for sent in opened(live)[:2]:
            assert deliver(live, sent, weights(2.0)) is None
    live.close()
    place = place_of(folder, cut, -2 if cut == "applied" else 0)
    write_lines(folder, lines_of(folder)[:place])
    with pytest.raises(FedtwinError, match=r"is on disk: its end is missing; intact are lines 1 to .*--repair goes back there"):
        opening.resume(folder)
    again = opening.resume(folder, repair=True)
    (repaired,) = [event for event in read_events(folder / "ledger.jsonl") if isinstance(event, events.Repaired)]
    assert repaired.uploads == (2 if cut == "applied" else 3) and again.core.version == (1 if cut == "applied" else 0)
    again.close()
    opening.resume(folder).close()


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_damaged_model_that_a_task_began_with_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    live = begun(tmp_path / "run", **MOMENTUM)
    assert deliver(live, dispatch(live), weights(1.0)) is None
    old = dispatch(live)
    for number in range(20):
        assert deliver(live, dispatch(live), weights(float(number))) is None
    live.close()
    start = tmp_path / "run" / "models" / f"model-{old.version:012d}.safetensors"
    if damage == "flipped":
        flipped(start, -1)
    else:
        start.unlink()
    again = opening.resume(tmp_path / "run")
    assert warned(caplog) == ["a model that tasks began with is gone or damaged: their uploads will be refused"]
    refused = deliver(again, old, weights(2.0)) or ""
    expected = "damaged: version 1 of the model, which it started from, is not what was written here"
    assert refused == (expected if damage == "flipped" else "stale: the model it started from is gone")
    assert not again.core.is_quarantined(again.core.names[old.device])
    again.close()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ledger.jsonl", r"ledger\.jsonl' cannot be read: it is a folder, not a file"),
        ("models/model-000000000005.safetensors", r"The model '.*' cannot be read: Is a directory; intact .* version 4"),
        ("models", r"The model '.*' cannot be read: .*; nothing is intact"),
        ("config.toml", r"config\.toml.*--repair puts config\.toml back as it was"),
    ],
)
def test_a_folder_in_place_of_a_file_is_one_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    folder = tmp_path / "run"
    played(folder, 5)
    path = folder / name
    if path.is_dir():
        shutil.rmtree(path)
        path.write_bytes(b"")
    else:
        path.unlink()
        path.mkdir()
    with pytest.raises(FedtwinError, match=sentence):
        opening.resume(folder)
    if name in ("ledger.jsonl", "models"):
        with pytest.raises(FedtwinError):
            opening.resume(folder, repair=True)
        assert not list(folder.glob("damaged-*")), "nothing was moved"
    else:
        goes_on(opening.resume(folder, repair=True))


def test_a_segment_that_is_a_folder_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.live.run.trail.SEGMENT_LINES", 20)
    played(tmp_path / "run", 12)
    segment = max((tmp_path / "run").glob("ledger-*"))
    segment.unlink()
    segment.mkdir()
    with pytest.raises(FedtwinError, match=r"cannot be read: it is a folder, not a file; intact are lines 1 to"):
        opening.resume(tmp_path / "run")
    live = opening.resume(tmp_path / "run", repair=True)
    assert (tmp_path / "run" / "damaged-1" / segment.name).is_dir() and segment.is_file()
    goes_on(live)
    opening.resume(tmp_path / "run").close()


def test_a_run_of_before_says_why_it_cannot_be_resumed_and_what_can_be_done(tmp_path: Path) -> None:
    """Settings that came later have changed what names the configuration; config.toml has not."""
    folder = tmp_path / "run"
    played(folder, 2)
    lines, before = [], ""
    for line in lines_of(folder):
        event, _ = chain.unsealed(line)
        began = events.EVENT.validate_json(event)
        if isinstance(began, events.Began):
            event = began.model_copy(update={"config_hash": "0" * 16}).model_dump_json(exclude_none=True).encode()
        line, before = chain.sealed(event, before)
        lines.append(line)
    write_lines(folder, lines)
    sentence = r"cannot be resumed: config\.toml is as it was, but .* it can be read \(fedtwin\.open_run\), or gone on with by"
    for repair in (False, True):
        with pytest.raises(FedtwinError, match=sentence):
            opening.resume(folder, repair=repair)
    assert len(open_run(folder).tasks) == 2
    write_lines(folder, [chain.unsealed(line)[0] + b"\n" for line in lines])
    with pytest.raises(FedtwinError, match=r"are not chained by checksums, as they were not at first; it can be read \(fedt"):
        opening.resume(folder)
    assert len(open_run(folder).tasks) == 2
