import json
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from fedtwin import __version__
from fedtwin.config import config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.terms import Quantities
from fedtwin.records import read_rounds, read_summary
from fedtwin.records.schema import Row, rounds_schema
from fedtwin.sim import simulate
from tests.conftest import FEDTWIN, hears_interrupts

COLUMNS = [
    *("round", "clock_s", "arrived", "device", "gain", "cpu_hz", "samples", "power_w", "compute_s", "upload_s"),
    *("compute_j", "upload_j", "cost", "index", "queue", "total_queue", "staleness", "declined", "time_ok", "energy_ok"),
]
FILES = {"SHA256SUMS", "config.toml", "summary.json", "devices.parquet", "rounds.parquet", "start.parquet"}


def test_a_run_folder_holds_what_the_docs_say(tmp_path: Path) -> None:
    config = load_config(overrides={"run.rounds": 50})
    result = simulate(config, out=tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES
    rounds = pd.read_parquet(tmp_path / "run" / "rounds.parquet")
    assert list(rounds.columns)[:20] == COLUMNS
    assert load_config(tmp_path / "run" / "config.toml") == config
    summary = read_summary(tmp_path / "run")
    assert summary["config_hash"] == config_hash(config)
    assert summary["package_version"] == __version__ and summary["schema_version"] == 1
    taken = rounds[~rounds.declined]
    assert len(taken) == summary["rounds"] == 50
    assert taken.cost.mean() == pytest.approx(summary["mean_cost"], rel=1e-12)
    assert (taken.compute_s + taken.upload_s).mean() == pytest.approx(summary["mean_time_s"], rel=1e-12)
    assert (taken.compute_j + taken.upload_j).mean() == pytest.approx(summary["mean_energy_j"], rel=1e-12)
    assert rounds.staleness.mean() == pytest.approx(summary["mean_staleness"])
    assert rounds.staleness.max() == summary["max_staleness"] > summary["mean_staleness"]
    devices = pd.read_parquet(tmp_path / "run" / "devices.parquet")
    own = [*Quantities._fields, "samples_spread"]
    assert list(devices.columns) == ["device", "distance_m", "path_gain", "cpu_hz_mean", "samples", *own, "tie_rank"]
    start = pd.read_parquet(tmp_path / "run" / "start.parquet")
    assert len(start[~start.declined]) == 15 and set(start["round"]) == {0}
    assert result.rounds.num_rows == len(rounds)


def test_records_in_memory_are_those_on_disk(tmp_path: Path) -> None:
    config = load_config(overrides={"run.rounds": 200})
    on_disk = simulate(config, out=tmp_path / "run", trace=True).rounds
    assert simulate(config, trace=True).rounds.equals(on_disk)
    with pytest.raises(ValueError, match="kept no records"):
        _ = simulate(config, records=False).rounds


def test_parts_become_one_file_with_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtwin.records.folder.ROWS_PER_PART", 7)
    config = load_config(overrides={"run.rounds": 100})
    simulate(config, out=tmp_path / "parts")
    monkeypatch.undo()
    simulate(config, out=tmp_path / "whole")
    assert read_rounds(tmp_path / "parts").equals(read_rounds(tmp_path / "whole"))
    assert (tmp_path / "parts" / "rounds.parquet").is_file()


def test_the_schema_has_a_place_for_every_field_of_a_row() -> None:
    columns = rounds_schema(trace=True, learning=True, timeout=True).names
    assert [name.replace("index", "score").replace("indices", "scores") for name in columns] == list(Row._fields)


def test_a_fleet_file_goes_along(tmp_path: Path) -> None:
    fleet = tmp_path / "mine.csv"
    fleet.write_text("distance_m,samples,cpu_hz\n" + "".join(f"{50 + 40 * n},80,2e9\n" for n in range(6)))
    config = load_config(overrides={"fleet.file": str(fleet), "fleet.channels": 3, "run.rounds": 30})
    simulate(config, out=tmp_path / "run")
    fleet.unlink()
    again = load_config(tmp_path / "run" / "config.toml")
    assert config_hash(again) == read_summary(tmp_path / "run")["config_hash"]
    assert simulate(again).rounds.equals(read_rounds(tmp_path / "run"))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "file").write_text("mine")
    config = load_config(overrides={"run.rounds": 5})
    for name, sentence in (("run", "exists already"), ("file", "exists already"), ("file/run", "cannot be written")):
        with pytest.raises(FedtwinError, match=sentence):
            simulate(config, out=tmp_path / name)
    assert list((tmp_path / "run").iterdir()) == [] and (tmp_path / "file").read_text() == "mine"


def test_a_folder_without_a_summary_is_not_a_finished_run(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match="not the folder of a finished run"):
        read_summary(tmp_path)


def test_a_killed_run_leaves_readable_records(tmp_path: Path) -> None:
    """kill -9 in the middle; what is there is a true beginning of the run."""
    out = tmp_path / "run"
    process = subprocess.Popen([*FEDTWIN, "run", "--rounds", "10000000", "--out", str(out)])
    try:
        deadline = time.monotonic() + 120
        while len(list(out.glob("rounds.parquet/part-*.parquet"))) < 2:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    table = pd.read_parquet(out / "rounds.parquet")
    assert len(table) >= 20_000 and not (out / "summary.json").exists()
    expected = simulate(load_config(overrides={"run.rounds": 12_000})).to_pandas()
    pd.testing.assert_frame_equal(table.iloc[:12_000], expected.iloc[:12_000])


def test_an_interrupted_run_keeps_every_row_so_far(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [*FEDTWIN, "run", "--rounds", "10000000", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=hears_interrupts)
    while process.poll() is None and not list((out / "rounds.parquet").glob("part-*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors.strip().endswith("interrupted") and "Traceback" not in errors
    assert pq.read_table(out / "rounds.parquet").num_rows > 100


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    config = load_config(overrides={"run.rounds": 300, "objective.max_time_s": 0.8})
    for name in ("one", "two"):
        simulate(config, out=tmp_path / name, trace=True)
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_the_summary_has_no_wall_times(tmp_path: Path) -> None:
    simulate(load_config(overrides={"run.rounds": 5}), out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert not [key for key in summary if "wall" in key or "date" in key or "elapsed" in key]
