"""Damage to a journal is one sentence, and what it says nothing reliable about is done again."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedtwin.config import build_config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.experiments.batches.journal import read_journal
from tests.conftest import run_cli
from tests.experiments.faults import fill, small_disk

JOBS = [Job(build_config({}, {"run.seed": k, "run.rounds": 30}), (10, 30)) for k in range(3)]


def another_digit(text: str) -> str:
    place = text.index('"mean_cost": ') + len('"mean_cost": 0.0')
    return text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]


def without_a_field(text: str) -> str:
    line = json.loads(text)
    del line["series"]
    return json.dumps(line)


def of_another_kind(text: str) -> str:
    line = json.loads(text)
    line["summary"] = [1, 2]
    return json.dumps(line)


def of_an_older_format(text: str) -> str:
    line = json.loads(text)
    del line["checksum"]
    return json.dumps(line)


DAMAGE: dict[str, Callable[[str], str]] = {
    "a flipped digit": another_digit,
    "a lost field": without_a_field,
    "another type": of_another_kind,
    "an older format": of_an_older_format,
    "cut short": lambda text: text[: len(text) // 2],
    "a list as key": lambda text: re.sub(r'"key": "\w+"', '"key": []', text),
    "no object": lambda _: "[1, 2]",
    "too deep": lambda _: "[" * 100_000,
    "no text": lambda text: text.replace("CU-UCB", "CU-\udcffUCB"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_line_is_told_and_its_run_done_again(tmp_path: Path, name: str) -> None:
    journal = tmp_path / "runs.jsonl"
    expected = run_batch(JOBS, workers=1, journal=journal)
    lines = journal.read_text().splitlines()
    lines[1] = DAMAGE[name](lines[1])
    journal.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
    told: list[int] = []
    with pytest.warns(FedtwinWarning, match=r"1 line of .*runs\.jsonl.* damaged") as caught:
        assert run_batch(JOBS, workers=1, journal=journal, progress=told.append) == expected
    assert len(caught) == 1 and told == [2, 1]


def test_no_flipped_bit_changes_an_outcome(tmp_path: Path) -> None:
    journal = tmp_path / "runs.jsonl"
    run_batch(JOBS[:1], workers=1, journal=journal)
    [known] = read_journal(journal).lines.values()
    whole = journal.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        journal.write_bytes(damaged)
        found = read_journal(journal)
        assert all(line == known for line in found.lines.values()) and found.damaged + len(found.lines) >= 1, place


def test_a_sweep_with_a_damaged_journal_ends_with_the_same_table(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text('schemes = ["CU-UCB"]\nseeds = 3\nrounds = 30\n', encoding="utf-8")
    script = (
        "import fedtwin.experiments.sweep as module\n"
        "def no_disk(*_, **__): raise OSError(28, 'No space left on device')\n"
        "module.write_checked = no_disk\n"
        "try: module.sweep('spec.toml', out='out', workers=1)\n"
        "except module.FedtwinError as error: print(error)\n"
    )
    first = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "No space left on device" in first.stdout, first.stderr
    journal = tmp_path / "out" / "unfinished.jsonl"
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([another_digit(lines[0]), lines[1], lines[2][:50]]), encoding="utf-8")
    done = run_cli("sweep", "spec.toml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0 and "Going on: 1 of 3 runs are finished already.\n" in done.stderr
    assert "warning: 2 lines of 'out/unfinished.jsonl' are damaged" in done.stderr and "Traceback" not in done.stderr
    assert run_cli("sweep", "spec.toml", "--out", "fresh", cwd=tmp_path).returncode == 0
    assert (tmp_path / "out" / "summaries.parquet").read_bytes() == (tmp_path / "fresh" / "summaries.parquet").read_bytes()


def test_a_journal_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").mkdir()
    with pytest.raises(FedtwinError, match=r"runs\.jsonl"):
        run_batch(JOBS, workers=1, journal=tmp_path / "runs.jsonl")


COMMANDS = {
    "sweep": ["sweep", "spec.toml", "--out", "disk/out", "--workers", "1"],
    "compare": ["compare", "--seeds", "60", "--rounds", "30", "--out", "disk/out", "--workers", "1"],
    "figure": ["figure", "5", "--profile", "quick", "--out", "disk/out", "--workers", "1"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_sentence_and_finished_runs_are_kept(tmp_path: Path, command: str) -> None:
    (tmp_path / "spec.toml").write_text("seeds = 60\nrounds = 30\n", encoding="utf-8")
    with small_disk(tmp_path / "disk", "32k"):
        done = run_cli(*COMMANDS[command], cwd=tmp_path)
        assert done.returncode == 2 and "No space left on device" in done.stderr and "Traceback" not in done.stderr
        said = [line for line in done.stderr.splitlines() if not line.startswith("Compiling the engine")]
        assert len(said) == 1, done.stderr
        [journal] = (tmp_path / "disk" / "out").glob("*.jsonl")
        found = read_journal(journal)
        assert found.damaged == 0 and found.lines and journal.read_bytes().endswith(b"\n")


def test_a_disk_that_is_full_when_the_table_is_written_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text('schemes = ["CU-UCB"]\nseeds = 3\nrounds = 30\n', encoding="utf-8")
    with small_disk(tmp_path / "disk"):
        assert run_cli("sweep", "spec.toml", "--out", "disk/out", cwd=tmp_path).returncode == 0
        before = {path.name: path.read_bytes() for path in (tmp_path / "disk" / "out").iterdir()}
        ballast = fill(tmp_path / "disk")
        (tmp_path / "spec.toml").write_text('schemes = ["Random"]\nseeds = 3\nrounds = 30\n', encoding="utf-8")
        done = run_cli("sweep", "spec.toml", "--out", "disk/out", "--overwrite", cwd=tmp_path)
        assert done.returncode == 2 and "No space left on device" in done.stderr and len(done.stderr.splitlines()) == 1
        after = {path.name: path.read_bytes() for path in (tmp_path / "disk" / "out").iterdir() if path.name in before}
        assert after == before
        ballast.unlink()
        assert run_cli("sweep", "spec.toml", "--out", "disk/out", "--overwrite", cwd=tmp_path).returncode == 0
