"""Finished files that were changed since are not believed."""

import json
import subprocess
from pathlib import Path

import pytest

from fedtwin.config import load_config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.compare import compare_folders
from fedtwin.records import read_rounds, read_summary
from fedtwin.records.checksums import SUMS_NAME, write_checked
from fedtwin.records.reading import read_unfinished
from fedtwin.sim import simulate
from tests.conftest import run_cli


def run_in(folder: Path, **settings: object) -> Path:
    simulate(load_config(overrides={"run.rounds": 40, **settings}), out=folder)
    return folder


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_the_checksums_are_those_of_all_files_and_of_the_usual_form(tmp_path: Path) -> None:
    folder = run_in(tmp_path / "run")
    listed = {line.split("  ")[1] for line in (folder / SUMS_NAME).read_text().splitlines()}
    assert listed == {path.name for path in folder.iterdir()} - {SUMS_NAME}
    subprocess.run(["sha256sum", "--check", "--strict", SUMS_NAME], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize("name", ["summary.json", "config.toml", "rounds.parquet"])
def test_a_changed_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    folder = run_in(tmp_path / "run")
    flip(folder / name, 40)
    with pytest.raises(FedtwinError, match=rf"{name}.* is not as it was written"):
        read_rounds(folder) if name == "rounds.parquet" else compare_folders([folder])


@pytest.mark.slow
def test_a_digit_flipped_in_a_summary_does_not_reach_a_comparison(tmp_path: Path) -> None:
    for name in ("CU-UCB", "Random"):
        assert run_cli("run", "--policy", name, "--rounds", 30, "--out", name, cwd=tmp_path).returncode == 0
    summary = tmp_path / "Random" / "summary.json"
    text = summary.read_text()
    place = text.index('"mean_cost": ') + len('"mean_cost": 0.0')
    summary.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
    done = run_cli("compare", "CU-UCB", "Random", cwd=tmp_path)
    assert done.returncode == 2 and "summary.json" in done.stderr and len(done.stderr.splitlines()) == 1 and not done.stdout


def test_damage_to_the_checksums_themselves_is_one_sentence(tmp_path: Path) -> None:
    folder = run_in(tmp_path / "run")
    size = (folder / SUMS_NAME).stat().st_size
    (folder / SUMS_NAME).write_bytes((folder / SUMS_NAME).read_bytes()[: size // 3])
    with pytest.raises(FedtwinError, match=r"SHA256SUMS"):
        read_summary(folder)


def test_a_folder_without_checksums_is_read_with_a_warning(tmp_path: Path) -> None:
    folder = run_in(tmp_path / "run")
    (folder / SUMS_NAME).unlink()
    with pytest.warns(FedtwinWarning, match="has no SHA256SUMS"):
        assert read_summary(folder)["rounds"] == 40


def test_records_of_an_unfinished_run_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "rounds.parquet").mkdir()
    (tmp_path / "rounds.parquet" / "part-000000.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(FedtwinError, match=r"rounds\.parquet.* cannot be read"):
        read_rounds(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", '{"config_hash": 3}', "\xff"])
def test_a_damaged_mark_of_an_unfinished_run_is_one_sentence(tmp_path: Path, text: str) -> None:
    folder = run_in(tmp_path / "run")
    (folder / "summary.json").unlink()
    (folder / "unfinished.json").write_text(text, encoding="latin-1")
    with pytest.raises(FedtwinError, match=r"is not the folder of an unfinished run|cannot be resumed"):
        read_unfinished(folder)


def test_files_are_replaced_together_or_not_at_all(tmp_path: Path) -> None:
    write_checked(tmp_path, {"a": b"old", "b": b"old"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / ".b").mkdir()
    with pytest.raises(OSError):
        write_checked(tmp_path, {"a": b"new", "b": b"new"})
    (tmp_path / ".b").rmdir()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("total_queue", None), ("scheme", 3), ("mean_cost", "x"), ("rounds", None), ("declines", "a"), ("seed", "0")],
)
def test_a_summary_of_an_old_folder_that_is_damaged_is_a_sentence(tmp_path: Path, name: str, value: object) -> None:
    """It has no checksums to tell by."""
    simulate(load_config(overrides={"run.rounds": 20}), out=tmp_path / "run")
    (tmp_path / "run" / "SHA256SUMS").unlink()
    path = tmp_path / "run" / "summary.json"
    summary = json.loads(path.read_text())
    with pytest.warns(FedtwinWarning, match="has no SHA256SUMS"):
        assert read_summary(tmp_path / "run") == summary
    path.write_text(json.dumps({**summary, name: value}))
    with pytest.warns(FedtwinWarning, match="has no SHA256SUMS"), pytest.raises(FedtwinError, match="cannot be read"):
        read_summary(tmp_path / "run")
