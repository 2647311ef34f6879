"""A simulation's folder, finished, killed at any moment or being written, is read one way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import fedtwin
from fedtwin import FedtwinError, Run, open_run, simulate
from fedtwin.config import build_config, load_config
from fedtwin.errors import FedtwinWarning
from fedtwin.records import folder as records_folder
from fedtwin.records.checksums import write_checked
from fedtwin.records.tables import ADDED_LATER
from fedtwin.sim.run import resume
from tests.conftest import FEDTWIN
from tests.runs.test_history import SETTINGS, quiet


def unfinish(folder: Path, rows: int, rows_per_part: int, *, trace: bool = False) -> None:
    """The folder as it was when a run had written so many rows and was killed."""
    table = pq.read_table(folder / "rounds.parquet")
    for name in ("rounds.parquet", "summary.json", "SHA256SUMS"):
        (folder / name).unlink()
    (folder / "rounds.parquet").mkdir()
    for part, first in enumerate(range(0, rows, rows_per_part)):
        piece = table.slice(first, min(rows_per_part, rows - first))
        pq.write_table(piece, folder / "rounds.parquet" / f"part-{part:06d}.parquet")
    mark = {"config_hash": "0123", "package_version": "0.1.0", "trace": trace}
    write_checked(folder, {"unfinished.json": json.dumps(mark).encode()}, ["config.toml", "devices.parquet"])


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def read_all(run: Run) -> list[Any]:
    tables = [run.config, run.summary, run.devices, run.start, run.rounds, run.tasks, run.evaluations, run.refusals]
    return [*tables, run.twin(), run.twin(round=1)]


def test_a_finished_run(tmp_path: Path) -> None:
    config = load_config(overrides={"run.rounds": 50})
    simulate(config, out=tmp_path / "run")
    before = content(tmp_path)
    run = open_run(str(tmp_path / "run"))
    assert run.finished and run.config == config and run.path == tmp_path / "run"
    assert run.summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert run.rounds.equals(pq.read_table(tmp_path / "run" / "rounds.parquet"))
    assert run.start.equals(pq.read_table(tmp_path / "run" / "start.parquet"))
    assert run.devices.equals(pq.read_table(tmp_path / "run" / "devices.parquet"))
    assert run.tasks.num_rows == 0 and "predicted_s" in run.tasks.column_names
    assert run.evaluations.num_rows == 0 and "test_accuracy" in run.evaluations.column_names
    assert run.refusals.num_rows == 0 and "reason" in run.refusals.column_names
    assert len(run.to_pandas()) == 50 and list(run.to_pandas("devices").device) == list(range(30))
    with pytest.raises(FedtwinError, match=r"to_pandas\('twins'\): a run has no such table, it has devices, start, rounds"):
        run.to_pandas("twins")
    with pytest.raises(FedtwinError, match="has no model"):
        _ = run.weights
    read_all(run)
    assert content(tmp_path) == before


def test_a_training_run(tmp_path: Path) -> None:
    changes = {"learning.dataset": "digits", "run.rounds": 30, "learning.executor": "serial", "learning.evaluate_every_s": 1.0}
    simulate(load_config(overrides=changes), out=tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.evaluations.num_rows > 1 and run.to_pandas("evaluations").test_accuracy.iloc[-1] == run.summary["test_accuracy"]
    assert run.rounds["train_loss"].null_count < 30
    assert all(isinstance(array, np.ndarray) for array in run.weights.values()) and len(run.weights) > 1
    (tmp_path / "run" / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(FedtwinError, match=r"model\.safetensors' is not as it was written"):
        _ = open_run(tmp_path / "run").weights


@quiet
@settings(max_examples=60)
@given(changes=SETTINGS)
def test_the_summary_of_what_is_there_is_summed_as_the_engine_does(changes: dict[str, Any]) -> None:
    """With all rows there, it is the summary of the finished run to the last bit."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        simulate(build_config({}, changes), out=folder)
        summary, rows = open_run(folder).summary, open_run(folder).rounds.num_rows
        unfinish(folder, rows, 10_000)
        found = open_run(folder).summary
        assert found.pop("unfinished") is True and found.pop("config_hash") == "0123"
        assert found == {key: value for key, value in summary.items() if key != "config_hash"}


@quiet
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_run_killed_at_any_row_is_a_true_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(records_folder, "ROWS_PER_PART", 7)
    changes = {"run.mode": mode, "run.rounds": 30, "fleet.channels": 4, "fleet.devices": 6, "objective.max_time_s": 0.7}
    simulate(build_config({}, changes), out=tmp_path / "run")
    whole = open_run(tmp_path / "run")
    for rows in range(whole.rounds.num_rows + 1):
        folder = tmp_path / str(rows)
        shutil.copytree(tmp_path / "run", folder)
        unfinish(folder, rows, 7)
        run = open_run(folder)
        assert not run.finished and run.summary["unfinished"] is True
        assert run.rounds.equals(whole.rounds.slice(0, rows))
        clock_s = run.summary["virtual_time_s"]
        if clock_s < whole.summary["virtual_time_s"] and run.summary["rounds"]:
            last = run.rounds["round"][-1].as_py()
            assert run.twin(round=last - 1) == whole.twin(round=last - 1)
            assert run.twin() == whole.twin(revision=run.moment().revision), (
                "a revision is one state, also when more is written"
            )
        assert run.summary["rounds"] <= rows
        if mode == "sync" and 0 < clock_s < whole.summary["virtual_time_s"]:
            known = run.twin()
            assert known == whole.twin(round=1 + round(known.model_version / 4)), "a round that is not whole is left out"


def test_parts_that_a_resumed_run_has_not_written_again_yet_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_folder, "ROWS_PER_PART", 10)
    simulate(load_config(overrides={"run.rounds": 35}), out=tmp_path / "run")
    whole = open_run(tmp_path / "run").rounds
    unfinish(tmp_path / "run", 35, 10)
    part = tmp_path / "run" / "rounds.parquet" / "part-000001.parquet"
    pq.write_table(pq.read_table(part).slice(0, 4), part)
    assert open_run(tmp_path / "run").rounds.equals(whole.slice(0, 14))
    assert open_run(tmp_path / "run").twin(round=14).devices


def test_a_run_that_was_killed_while_its_parts_became_one_file(tmp_path: Path) -> None:
    simulate(load_config(overrides={"run.rounds": 35}), out=tmp_path / "run")
    whole = open_run(tmp_path / "run").rounds
    unfinish(tmp_path / "run", 35, 10_000)
    (tmp_path / "run" / "rounds.parquet").rename(tmp_path / "run" / ".rounds.parts")
    assert open_run(tmp_path / "run").rounds.equals(whole)


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    simulate(load_config(overrides={"run.rounds": 20}), out=tmp_path / "run")
    unfinish(tmp_path / "run", 0, 10)
    run = open_run(tmp_path / "run")
    assert run.rounds.num_rows == 0 and "total_queue" in run.rounds.column_names
    assert run.summary["rounds"] == 0 and run.summary["mean_cost"] is None
    assert [device.status for device in run.twin().devices].count("in-flight") == 15
    assert run.twin(round=0).devices[0].gain is None


def test_a_run_killed_for_real_is_read_and_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen([*FEDTWIN, "run", "--rounds", "10000000", "--out", str(out)])
    try:
        deadline = time.monotonic() + 120
        while len(list(out.glob("rounds.parquet/part-*.parquet"))) < 2:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        running = open_run(out)
        assert running.rounds.num_rows >= 10_000 and running.twin(round=9_999) is not None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    run = open_run(out)
    assert not run.finished and run.summary["rounds"] >= 20_000
    assert run.twin(round=9_999) == running.twin(round=9_999)


def test_a_run_without_records_says_so(tmp_path: Path) -> None:
    simulate(load_config(overrides={"run.rounds": 20, "run.records": False}), out=tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.summary["rounds"] == 20 and run.devices.num_rows == 30
    for ask in (lambda: run.rounds, run.twin):
        with pytest.raises(FedtwinError, match="kept no records"):
            ask()


def test_a_traced_run_that_was_killed(tmp_path: Path) -> None:
    simulate(load_config(overrides={"run.rounds": 20}), out=tmp_path / "run", trace=True)
    assert len(open_run(tmp_path / "run").rounds["queues"][0].as_py()) == 30
    unfinish(tmp_path / "run", 12, 10_000, trace=True)
    assert open_run(tmp_path / "run").rounds.column_names[-1] == "explained"
    unfinish_nothing = open_run(tmp_path / "run")
    assert unfinish_nothing.twin(round=12).devices and unfinish_nothing.summary["rounds"] == 12


def test_what_is_no_run_is_a_sentence(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing", Path(__file__)):
        with pytest.raises(FedtwinError, match=r"is not the folder of a run: it has no config\.toml"):
            open_run(place)
    (tmp_path / "config.toml").write_text("[run]\nrounds = 3\n")
    with pytest.raises(FedtwinError, match=r"no run has begun beside its config\.toml"):
        open_run(tmp_path)


@pytest.mark.parametrize("name", ["config.toml", "summary.json", "rounds.parquet", "start.parquet", "devices.parquet"])
def test_damage_is_a_sentence(tmp_path: Path, name: str) -> None:
    simulate(load_config(overrides={"run.rounds": 20}), out=tmp_path / "run")
    path = tmp_path / "run" / name
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with pytest.raises(FedtwinError, match=f"{name}' is not as it was written"):
        read_all(open_run(tmp_path / "run"))
    (tmp_path / "run" / "SHA256SUMS").unlink()
    path.write_bytes(b"PAR1 = ")
    with pytest.warns(FedtwinWarning, match="has no SHA256SUMS"), pytest.raises(FedtwinError, match=f"{name}|config"):
        read_all(open_run(tmp_path / "run"))


def test_a_table_that_is_gone_or_another_is_a_sentence(tmp_path: Path) -> None:
    simulate(load_config(overrides={"run.rounds": 20}), out=tmp_path / "run")
    (tmp_path / "run" / "start.parquet").unlink()
    with pytest.raises(FedtwinError, match=r"start\.parquet' cannot be read: No such file"):
        open_run(tmp_path / "run").twin()
    (tmp_path / "run" / "SHA256SUMS").unlink()
    shutil.copyfile(tmp_path / "run" / "devices.parquet", tmp_path / "run" / "rounds.parquet")
    with (
        pytest.warns(FedtwinWarning),
        pytest.raises(FedtwinError, match=r"rounds\.parquet' is damaged: it has no column round"),
    ):
        _ = open_run(tmp_path / "run").rounds


def test_reading_runs_no_code_of_the_folder(tmp_path: Path) -> None:
    """Neither a policy of one's own, which lies in the folder, nor anything beside it; also of a run that has not ended."""
    mine = "from fedtwin.policies import Policy\nPOLICY = Policy(lambda view, knobs: view.samples, power='max')\n"
    (tmp_path / "mine.py").write_text(mine)
    config = load_config(
        overrides={"policy.name": "mine:POLICY", "run.rounds": 20, "run.engine": "readable"}, code_in=[tmp_path]
    )
    simulate(config, out=tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "killed")
    unfinish(tmp_path / "killed", 12, 10_000)
    for name in ("run", "killed"):
        code = tmp_path / name / "code" / "mine.py"
        text = code.read_text() + f"open({str(tmp_path / 'ran')!r}, 'w')\n"
        code.write_text(text)
        for trap in ("pyarrow.py", "numpy.py", "sitecustomize.py", "conftest.py"):
            (tmp_path / name / trap).write_text(text)
    reading = (
        "import sys, fedtwin\n"
        "for path in sys.argv[1:]:\n"
        "    run = fedtwin.open_run(path)\n"
        "    print(run.config.policy.name, run.summary['scheme'], run.rounds.num_rows, run.twin().model_version)\n"
    )
    command = [sys.executable, "-W", "error", "-c", reading, str(tmp_path / "run"), str(tmp_path / "killed")]
    environment = {**os.environ, "PYTHONPATH": str(Path(fedtwin.__file__).parents[1])}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    assert [line.split()[:2] for line in said.stdout.splitlines()] == [["mine:POLICY", "mine:POLICY"]] * 2
    assert not (tmp_path / "ran").exists()


def test_an_unfinished_run_is_as_before_after_it_was_read(tmp_path: Path) -> None:
    config = load_config(overrides={"run.rounds": 40, "run.engine": "readable"})
    simulate(config, out=tmp_path / "whole")

    def stop(selections: int) -> None:
        if selections >= 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, out=tmp_path / "run", progress=stop)
    before = content(tmp_path / "run")
    run = open_run(tmp_path / "run")
    read_all(run)
    assert run.summary["rounds"] == run.rounds.num_rows == 25 and content(tmp_path / "run") == before
    resume(tmp_path / "run")
    assert (tmp_path / "run" / "rounds.parquet").read_bytes() == (tmp_path / "whole" / "rounds.parquet").read_bytes()


def interrupted(out: Path, *, rounds: int = 40, after: int = 35) -> Path:
    def stop(selections: int) -> None:
        if selections >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(load_config(overrides={"run.rounds": rounds, "run.engine": "readable"}), out=out, progress=stop)
    return out


def test_an_unfinished_run_whose_settings_were_edited_is_refused(tmp_path: Path) -> None:
    config = interrupted(tmp_path / "run") / "config.toml"
    config.write_text(config.read_text().replace("rounds = 40", "rounds = 50"))
    for name in ("config", "rounds", "summary"):
        with pytest.raises(FedtwinError, match=r"config\.toml' is not as it was written"):
            getattr(open_run(tmp_path / "run"), name)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_part_that_is_gone_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    monkeypatch.setattr(records_folder, "ROWS_PER_PART", 10)
    parts = interrupted(tmp_path / "run") / "rounds.parquet"
    assert len(list(parts.iterdir())) == 4
    (parts / f"part-{part:06d}.parquet").unlink()
    with pytest.raises(FedtwinError, match=f"rounds.parquet' is damaged: part-00000{part}.parquet is missing"):
        _ = open_run(tmp_path / "run").rounds
    with pytest.raises(FedtwinError, match="is missing"):
        next(iter(open_run(tmp_path / "run").follow()))


def test_parts_whose_rounds_leave_a_gap_are_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_folder, "ROWS_PER_PART", 10)
    parts = interrupted(tmp_path / "run") / "rounds.parquet"
    shutil.copyfile(parts / "part-000002.parquet", parts / "part-000001.parquet")
    with pytest.raises(FedtwinError, match="its rounds are not numbered 1, 2, 3"):
        _ = open_run(tmp_path / "run").rounds


def test_a_flipped_bit_of_an_unfinished_run_is_a_sentence_or_nothing(tmp_path: Path) -> None:
    """Wherever it is: what is read is what was written, or a sentence."""
    folder = interrupted(tmp_path / "run", rounds=10, after=3)
    for name, table in (("rounds.parquet/part-000000.parquet", "rounds"), ("start.parquet", "start")):
        path = folder / name
        data, whole = path.read_bytes(), getattr(open_run(folder), table)
        refused = 0
        for place in range(0, len(data), 7):
            path.write_bytes(data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :])
            try:
                assert getattr(open_run(folder), table).equals(whole)
            except FedtwinError:
                refused += 1
        assert refused > len(data) / 14
        path.write_bytes(data)


def test_first_dispatches_that_are_gone_are_a_sentence(tmp_path: Path) -> None:
    (interrupted(tmp_path / "run") / "start.parquet").unlink()
    with pytest.raises(FedtwinError, match=r"is damaged: start\.parquet is missing"):
        _ = open_run(tmp_path / "run").start


def test_a_run_whose_mark_is_gone_is_no_run(tmp_path: Path) -> None:
    (interrupted(tmp_path / "run") / "unfinished.json").unlink()
    with pytest.raises(FedtwinError, match="is not the folder of a run"):
        open_run(tmp_path / "run")


@pytest.mark.filterwarnings("ignore:.*has no SHA256SUMS")
def test_evaluations_from_before_there_were_gradients_averages_and_costs_have_none(tmp_path: Path) -> None:
    simulate({"run.rounds": 8, "learning.dataset": "digits", "learning.executor": "serial"}, out=tmp_path / "run")
    file, later = tmp_path / "run" / "evaluations.parquet", ADDED_LATER
    pq.write_table(pq.read_table(file).drop_columns(list(later)), file)
    (tmp_path / "run" / "SHA256SUMS").unlink()
    found = open_run(tmp_path / "run").evaluations
    assert found.num_rows and {found[name].null_count for name in later} == {found.num_rows}
    assert found["test_loss"].null_count == 0
