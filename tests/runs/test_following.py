"""Whoever follows a run that another process writes sees every row once, in order, and the end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import fedtwin
from fedtwin import FedtwinError, open_run, simulate
from fedtwin.config import load_config
from fedtwin.live.run import events
from fedtwin.records import folder as records_folder
from fedtwin.records.files import write_table
from fedtwin.runs import News
from tests.conftest import FEDTWIN
from tests.runs.test_simulated import unfinish

ROOT = Path(__file__).parents[2]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.005)


def rows_of(news: list[News]) -> pa.Table:
    return pa.concat_tables([one.rounds for one in news])


@pytest.mark.slow
def test_a_simulation_that_another_process_writes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [*FEDTWIN, "run", "--rounds", "40000", "--set", "run.engine=readable", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for(out / "unfinished.json")
        news = list(open_run(out).follow(every_s=0.02, timeout_s=60))
    finally:
        process.wait(120)
    assert process.returncode == 0 and len(news) > 2
    assert [one.finished for one in news] == [False] * (len(news) - 1) + [True]
    assert rows_of(news).equals(open_run(out).rounds)
    assert news[-1].run.summary["rounds"] == 40_000


def test_a_live_run_that_another_process_writes(tmp_path: Path) -> None:
    """With a last line that is torn for a while, and records that come after the ledger's end."""
    out = tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": f"{Path(fedtwin.__file__).parents[1]}{os.pathsep}{ROOT}"}
    process = subprocess.Popen([sys.executable, "-m", "tests.runs.live_writer", str(out), "20"], env=environment, cwd=ROOT)
    versions: list[int] = []
    happened: list[events.Event] = []
    rounds: list[int | None] = []
    try:
        wait_for(out / "ledger.jsonl")
        for news in open_run(out).follow(every_s=0.01, timeout_s=60):
            happened += news.events
            rounds += news.rounds["round"].to_pylist()
            if news.run.devices.num_rows:
                versions.append(news.run.twin().model_version)
    finally:
        process.wait(60)
    assert process.returncode == 0 and news.finished
    assert versions == sorted(versions) and versions[-1] == 20 and len(set(versions)) > 3
    assert isinstance(happened[0], events.Began) and isinstance(happened[-1], events.Stopped)
    assert rounds == open_run(out).rounds["round"].to_pylist()


def test_a_run_that_was_killed_is_waited_for_no_longer_than_told(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen([*FEDTWIN, "run", "--rounds", "10000000", "--out", str(out)], stdout=subprocess.DEVNULL)
    wait_for(out / "rounds.parquet" / "part-000000.parquet")
    process.send_signal(signal.SIGKILL)
    process.wait()
    news = list(open_run(out).follow(every_s=0.01, timeout_s=0.1))
    assert news and not news[-1].finished
    assert rows_of(news).equals(open_run(out).rounds)


def test_a_resumed_run_is_followed_without_a_row_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes its parts again, the first ones first."""
    monkeypatch.setattr(records_folder, "ROWS_PER_PART", 10)
    folder, parts = tmp_path / "run", tmp_path / "run" / "rounds.parquet"
    simulate(load_config(overrides={"run.rounds": 47}), out=folder)
    whole = open_run(folder).rounds
    unfinish(folder, 35, 10)
    followed = open_run(folder).follow(every_s=0.0)
    news = [next(followed)]
    assert news[0].rounds.equals(whole.slice(0, 35))
    for part in parts.iterdir():
        part.unlink()
    for rows in (10, 12, 41, 47):
        for part in parts.iterdir():
            part.unlink()
        for number, first in enumerate(range(0, rows, 10)):
            write_table(whole.slice(first, min(10, rows - first)), parts / f"part-{number:06d}.parquet")
        if rows > 35:
            news.append(next(followed))
    assert rows_of(news).equals(whole)


def test_a_finished_run_is_one_piece_of_news(tmp_path: Path) -> None:
    changes = {"learning.dataset": "digits", "run.rounds": 30, "learning.executor": "serial"}
    simulate(load_config(overrides=changes), out=tmp_path / "run")
    (news,) = open_run(tmp_path / "run").follow()
    assert news.finished and news.rounds.num_rows == 30 and news.evaluations.num_rows > 0 and news.events == ()


def test_a_run_without_records_is_followed_to_its_end(tmp_path: Path) -> None:
    simulate(load_config(overrides={"run.rounds": 20, "run.records": False}), out=tmp_path / "run")
    (news,) = open_run(tmp_path / "run").follow()
    assert news.finished and news.rounds.num_rows == 0 and news.run.summary["rounds"] == 20


def test_times_that_are_none_are_a_sentence(tmp_path: Path) -> None:
    simulate(load_config(overrides={"run.rounds": 20}), out=tmp_path / "run")
    for wrong in ({"every_s": -1.0}, {"timeout_s": float("nan")}):
        with pytest.raises(FedtwinError, match=r"follow\((every|timeout)_s\) = .*: it must be 0 or more seconds"):
            open_run(tmp_path / "run").follow(**wrong)
