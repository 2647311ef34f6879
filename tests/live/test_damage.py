"""What is damaged in a run's folder while its edge server is down, on the real processes: said, and repaired when asked to."""

import shutil
from pathlib import Path

import pytest

from fedtwin.live.run import events
from tests.conftest import run_cli
from tests.live.plant import events_of, plant, until, write_model
from tests.live.run.test_live_run import begun, deliver, dispatch, weights
from tests.live.run.test_repair import drop_line

EMULATED = ("--no-training", "--samples", 40, "--radio", "emulated", "--distance-m", 150)


def test_repair_goes_with_resume(tmp_path: Path) -> None:
    done = run_cli("edge", "--out", str(tmp_path / "run"), "--repair")
    assert done.returncode == 2 and "error: --repair goes with --resume DIR: a new run has nothing to repair." in done.stderr


@pytest.mark.slow
def test_a_flipped_byte_in_the_newest_model_is_one_sentence_and_repaired(tmp_path: Path) -> None:
    with plant(tmp_path) as fleet:
        model = write_model(tmp_path / "initial.safetensors")
        new = ("--out", fleet.run, "--initial", model, "--rounds", 10**6, "--time-scale", 0.2)
        fleet.edge(*new, fleet__devices=2, fleet__channels=2, live__heartbeat_s=0.3)
        url = fleet.url()
        for number in range(2):
            fleet.device(f"device-{number}", url, *EMULATED)
        fleet.wait_for("applied", count=5)
        assert fleet.stopped("edge") == 0
        newest = max((fleet.run / "models").glob("model-*"))
        data = bytearray(newest.read_bytes())
        data[-1] ^= 0x40
        newest.write_bytes(data)
        (fleet.run / "model.safetensors").unlink()  # the result of the stopped run is a copy, by which nothing would be lost
        applied = len(events_of(fleet.run, "applied"))

        fleet.edge("--resume", fleet.run)
        assert fleet.ended("edge") == 2
        said = fleet.log("edge").splitlines()[-1]
        assert f"{newest.name}' is damaged: it is not what the ledger says was written; intact are lines 1 to" in said
        assert "--repair goes back there" in said and "Traceback" not in fleet.log("edge")

        fleet.edge("--resume", fleet.run, "--repair")
        repaired = fleet.wait_for("repaired")
        assert repaired["version"] == applied - 1 and repaired["uploads"] == 1
        fleet.wait_for("applied", count=applied + 5)
        assert not events_of(fleet.run, "quarantined"), "nobody is blamed for it"
        assert fleet.stopped("edge") == 0


@pytest.mark.parametrize("devices", [2, 0])
def test_a_ledger_removed_under_a_run_ends_it_in_a_sentence_with_its_newest_model(tmp_path: Path, devices: int) -> None:
    """At the next line, which is the last one where no device is there."""
    with plant(tmp_path) as fleet:
        fleet.new_edge("--rounds", 10**6, "--time-scale", 0.2, fleet__devices=2, fleet__channels=2, live__heartbeat_s=0.3)
        url = fleet.url()
        for number in range(devices):
            fleet.device(f"device-{number}", url, *EMULATED)
        if devices:
            fleet.wait_for("applied", count=5)
        else:
            until(lambda: "serving" in fleet.log("edge"), "the edge server serves")
        (fleet.run / "ledger.jsonl").unlink()
        assert (fleet.ended("edge") if devices else fleet.stopped("edge")) == 2
        said = fleet.log("edge")
        assert said.splitlines()[-1].endswith("ledger.jsonl' cannot be written: No such file or directory.")
        assert "Traceback" not in said and (fleet.run / "model.safetensors").is_file()


def with_a_damaged_past(folder: Path) -> None:
    """A run that is over, killed before its records were written, with a line dropped before its snapshots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedtwin.live.run.trail.SEGMENT_LINES", 20)
        live = begun(folder)
        for number in range(12):
            assert deliver(live, dispatch(live), weights(float(number))) is None
        live.commit(events.Stopped(at_s=live.now_s(), finished=True))
        live.close()
    drop_line(folder, 9)


def test_a_run_whose_past_is_damaged_ends_with_its_records_a_sentence_and_a_code(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with_a_damaged_past(folder)
    done = run_cli("edge", "--resume", str(folder), "--no-evaluator")
    assert done.returncode == 6 and "Traceback" not in done.stderr
    said = done.stderr.splitlines()
    assert any("the ledger is damaged before the snapshot that the run goes on from" in line for line in said[:-1])
    assert said[-1].startswith("error: ") and "ledger.jsonl' is damaged in line 9" in said[-1]
    assert "(2 lines of the ledger cannot be used): the tables and means are of what is left, rounds 1 to " in said[-1]
    for name in ("model.safetensors", "summary.json", "rounds.parquet", "tasks.parquet"):
        assert (folder / name).is_file()


@pytest.mark.slow
def test_segments_that_were_moved_away_are_a_word_and_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with_a_damaged_past(folder)
    (folder / "ledger.jsonl").unlink()
    done = run_cli("edge", "--resume", str(folder), "--no-evaluator")
    assert done.returncode == 0 and "The ledger is there from line 22 on: the tables and means are of" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ledger.jsonl", "config.toml", "models", "models/model-000000000012.safetensors"])
def test_a_folder_in_place_of_a_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    with_a_damaged_past(folder)
    path = folder / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
        path.mkdir()
    done = run_cli("edge", "--resume", str(folder), "--no-evaluator")
    if name == "ledger.jsonl":  # it is in the snapshot what stood there
        assert done.returncode == 6 and "cannot be read: it is a folder, not a file" in done.stderr.splitlines()[-1]
    else:
        assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr
