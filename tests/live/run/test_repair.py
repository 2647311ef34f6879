"""What is damaged on disk is said in one sentence, with what is intact; a repair goes back there, and deletes nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtwin
from fedtwin.errors import FedtwinError
from fedtwin.live.run import events, opening
from fedtwin.live.run.ledger import first_lines, read_events, segment_path
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.tables import write_records
from fedtwin.runs import open_run
from tests.live.run.reading_back import as_read, start_s
from tests.live.run.test_live_run import begun, deliver, dispatch, weights
from tests.live.run.test_round import SYNC, opened
from tests.live.run.test_trail import FEDBUFF

CURE = r"fedtwin edge --resume .*run --repair goes back there, and .* lost"


def played(folder: Path, uploads: int, **settings: Any) -> list[np.ndarray]:
    """The models, one after the other."""
    live = begun(folder, **settings)
    models = [live.model.weights.floats]
    for number in range(uploads):
        assert deliver(live, dispatch(live), weights(float(number + 1))) is None
        models.append(live.model.weights.floats)
    live.close()
    return models


def flipped(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x40
    path.write_bytes(data)


def lines_of(folder: Path) -> list[bytes]:
    return (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)


def write_lines(folder: Path, lines: list[bytes]) -> None:
    (folder / "ledger.jsonl").write_bytes(b"".join(lines))


def place_of(folder: Path, kind: str, number: int) -> int:
    return [place for place, line in enumerate(lines_of(folder)) if f'"kind":"{kind}"'.encode() in line][number]


def newest_model(folder: Path) -> None:
    flipped(folder / "models" / "model-000000000005.safetensors", -1)


def dropped_line(folder: Path) -> None:
    lines = lines_of(folder)
    del lines[place_of(folder, "applied", -1)]
    write_lines(folder, lines)


def changed_line(folder: Path) -> None:
    lines, place = lines_of(folder), place_of(folder, "applied", -1)
    write_lines(folder, [*lines[:place], lines[place].replace(b'"staleness":0', b'"staleness":1'), *lines[place + 1 :]])


def drop_line(folder: Path, number: int) -> None:
    """Wherever the segment is that has it."""
    ledger = folder / "ledger.jsonl"
    first = max(first for first in first_lines(ledger) if first <= number)
    segment = segment_path(ledger, first)
    lines = segment.read_bytes().splitlines(keepends=True)
    del lines[number - first]
    segment.write_bytes(b"".join(lines))


def version_after(folder: Path) -> list[int]:
    """Of the model, after every line."""
    versions = [0]
    for event in read_events(folder / "ledger.jsonl"):
        versions.append(event.version if isinstance(event, events.Applied) else versions[-1])
    return versions[1:]


def goes_on(live: LiveRun, value: float = 1.0) -> None:
    assert deliver(live, dispatch(live), weights(value)) is None
    live.close()


@pytest.mark.parametrize(
    ("damage", "sentence", "version", "lost"),
    [
        (newest_model, r"The model '.*model-000000000005\.safetensors' is damaged: it is not what the ledger says", 4, 1),
        (dropped_line, r"ledger\.jsonl' is damaged in line LAST: it is not as it was written, or lines", 4, 0),
        (changed_line, r"ledger\.jsonl' is damaged in line LAST: it is not as it was written, or lines", 4, 1),
    ],
)
def test_damage_is_said_with_what_is_intact_and_repaired(
    tmp_path: Path, damage: Callable[[Path], None], sentence: str, version: int, lost: int
) -> None:
    folder = tmp_path / "run"
    models = played(folder, 5)
    live = opening.resume(folder)
    dispatch(live)  # so that there is something after the last upload
    live.close()
    last = place_of(folder, "applied", -1) + 1
    damage(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    intact = rf"; intact are lines 1 to {last - 1} of the ledger, to version {version} of the model at [0-9.]+ s: {CURE}"
    with pytest.raises(FedtwinError, match=sentence.replace("LAST", str(last)) + ".*" + intact):
        opening.resume(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before, "a resume changes nothing"

    again = opening.resume(folder, repair=True)
    assert again.core.version == version and np.array_equal(again.model.weights.floats, models[version])
    (repaired,) = [event for event in read_events(folder / "ledger.jsonl") if isinstance(event, events.Repaired)]
    assert (repaired.version, repaired.uploads, repaired.folder) == (version, lost, "damaged-1")
    cut = (folder / "damaged-1" / "ledger.jsonl").read_bytes()
    whole = before[folder / "ledger.jsonl"]
    assert whole.endswith(cut) and lines_of(folder)[: last - 1] == whole.removesuffix(cut).splitlines(keepends=True)
    assert repaired.lines == cut.count(b"\n") and repaired.uploads == cut.count(b'"kind":"applied"')
    newest = folder / "models" / "model-000000000005.safetensors"
    assert (folder / "damaged-1" / newest.name).read_bytes() == before[newest]
    goes_on(again)
    assert open_run(folder).twin() == as_read(again.core.twin, start_s(folder))
    opening.resume(folder).close()


def test_a_stopped_run_has_a_copy_of_its_newest_model_by_which_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    live = begun(folder)
    for number in range(5):
        assert deliver(live, dispatch(live), weights(float(number + 1))) is None
    live.commit(events.Stopped(at_s=live.now_s(), finished=False))
    write_records(folder, live.core, live.model)
    live.close()
    newest_model(folder)
    with pytest.raises(FedtwinError, match="is damaged"):
        opening.resume(folder)
    with caplog.at_level("INFO", "fedtwin.live"):
        opening.repaired(folder)
        opening.repaired(folder)
    assert [record.message for record in caplog.records] == ["repaired, and nothing was lost", "there was nothing to repair"]
    again = opening.resume(folder)
    assert again.core.applied == 5 and again.model.encoded == live.model.encoded
    again.close()


def test_a_repair_of_what_is_whole_changes_nothing(tmp_path: Path) -> None:
    played(tmp_path / "run", 3)
    lines = lines_of(tmp_path / "run")
    live = opening.resume(tmp_path / "run", repair=True)
    assert lines_of(tmp_path / "run")[:-1] == lines and not list((tmp_path / "run").glob("damaged-*"))
    goes_on(live)


def test_damage_far_back_goes_to_the_last_model_that_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the versions in between there is no file any more: the run goes back to an anchor."""
    monkeypatch.setattr("fedtwin.live.run.trail.SEGMENT_LINES", 16)
    folder = tmp_path / "run"
    models = played(folder, 12, **{"learning.average": "none"})
    for snapshot in folder.glob("snapshot-*"):
        snapshot.unlink()  # they have the state, and nothing would be lost
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole)
    versions = version_after(folder)
    assert versions[-1] == 12 and len(versions) > 48
    anchors = [versions[16 * number - 1] for number in range(1, len(versions) // 16 + 1)]
    for line, anchor in ((len(versions) - 1, anchors[-1]), (16 * len(anchors) - 2, anchors[-2]), (10, None)):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        drop_line(folder, line)
        if anchor is None:
            with pytest.raises(FedtwinError, match=r"in line 10: .*; nothing is intact that the run could go back to"):
                opening.resume(folder)
            with pytest.raises(FedtwinError, match="cannot be repaired: no model is left that the ledger leads to"):
                opening.resume(folder, repair=True)
            continue
        with pytest.raises(FedtwinError, match=rf"line {line}: .* to version {anchor} of the model"):
            opening.resume(folder)
        again = opening.resume(folder, repair=True)
        assert again.core.version == anchor and np.array_equal(again.model.weights.floats, models[anchor])
        goes_on(again)


def test_settings_that_were_changed_are_put_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    played(folder, 2)
    config = folder / "config.toml"
    good = config.read_bytes()
    for bad in (
        good.replace(b"devices = 3", b"devices = 2"),
        good.replace(b"channels = 3", b"channels = 1"),
        good.replace(b"devices = 3", b"devices = three"),
        good + b"\xff\xfe",
        b"",
    ):
        assert bad != good
        config.write_bytes(bad)
        with pytest.raises(
            FedtwinError, match=r"cannot be resumed: .*; fedtwin edge --resume .* --repair puts config\.toml back"
        ):
            opening.resume(folder)
        live = opening.resume(folder, repair=True)
        assert config.read_bytes() == good
        live.close()
        kept = max(folder.glob("damaged-*"), key=lambda path: int(path.name.partition("-")[2]))
        assert (kept / "config.toml").read_bytes() == bad
    config.unlink()
    opening.resume(folder, repair=True).close()
    assert config.read_bytes() == good


@pytest.mark.parametrize("how", ["truncated", "gone"])
def test_a_damaged_buffer_goes_back_to_the_upload_before(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "run"
    played(folder, 7, **FEDBUFF)
    buffer = folder / "models" / "upload-000000000006.safetensors"
    if how == "truncated":
        buffer.write_bytes(buffer.read_bytes()[:20])
    else:
        buffer.unlink()
    with pytest.raises(
        FedtwinError, match=rf"The upload '.*' (is damaged|cannot be read): .*; intact .* version 5 of .*{CURE}"
    ):
        opening.resume(folder)
    again = opening.resume(folder, repair=True)
    assert again.core.version == 5
    for value in (6.0, 7.0, 8.0):
        assert deliver(again, dispatch(again), weights(value)) is None
    again.close()
    played(tmp_path / "other", 8, **FEDBUFF)
    other = opening.resume(tmp_path / "other")
    assert other.core.version == again.core.version == 8 and other.model.encoded == again.model.encoded
    other.close()


def test_a_damaged_upload_of_an_open_round_is_said_when_the_run_is_resumed(tmp_path: Path) -> None:
    """Not when the round is closed, at which the run would end again and again."""
    live = begun(tmp_path / "run", **SYNC)
    sent = opened(live)
    assert deliver(live, sent[0], weights(1.0)) is None
    live.close()
    (upload,) = (tmp_path / "run" / "models").glob("upload-*")
    upload.write_bytes(upload.read_bytes()[:-1])
    with pytest.raises(FedtwinError, match=rf"The upload '.*' is damaged: .*{CURE}"):
        opening.resume(tmp_path / "run")
    again = opening.resume(tmp_path / "run", repair=True)
    assert deliver(again, sent[0], weights(1.0)) is None
    again.close()


def test_another_version_of_the_package_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    played(tmp_path / "run", 1)
    opening.resume(tmp_path / "run").close()
    assert not caplog.records
    monkeypatch.setattr("fedtwin.live.run.going_on.__version__", "9.9")
    opening.resume(tmp_path / "run").close()
    (said,) = caplog.records
    assert said.levelname == "WARNING" and "another version of fedtwin" in said.message
    assert said.__dict__["fields"] == {"begun_by": fedtwin.__version__, "this": "9.9"}


def test_lines_that_are_missing_at_the_end_are_told_by_the_models(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    models = played(folder, 5)
    write_lines(folder, lines_of(folder)[: place_of(folder, "applied", 0)])
    with pytest.raises(
        FedtwinError,
        match=rf"ledger\.jsonl' ends with version 0 of the model, and version 5 is on disk: its end is missing; .*{CURE}",
    ):
        opening.resume(folder)
    again = opening.resume(folder, repair=True)
    assert again.core.version == 0 and np.array_equal(again.model.weights.floats, models[0])
    (repaired,) = [event for event in read_events(folder / "ledger.jsonl") if isinstance(event, events.Repaired)]
    assert (repaired.lines, repaired.uploads) == (0, 5)
    assert (folder / "damaged-1" / "model-000000000005.safetensors").exists()
    goes_on(again)


@pytest.mark.parametrize(("settings", "rule"), [({}, "fedasync"), (FEDBUFF, "fedbuff")])
def test_a_line_that_is_lost_before_the_first_snapshot_costs_a_few_uploads(
    tmp_path: Path, settings: dict[str, Any], rule: str
) -> None:
    folder = tmp_path / rule
    models = played(folder, 80, **{"run.rounds": 200}, **settings)
    drop_line(folder, place_of(folder, "applied", 70) + 1)
    again = opening.resume(folder, repair=True)
    assert 80 - 3 * 10 - 32 <= again.core.version <= 70
    assert np.array_equal(again.model.weights.floats, models[again.core.version])
    goes_on(again)
