"""A batch that one call may do only some of, and the call that goes on, perhaps elsewhere."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedtwin.config import build_config
from fedtwin.errors import FedtwinError, NotFinishedError
from fedtwin.experiments.batches import backends, job
from fedtwin.experiments.batches.allowance import Allowance
from fedtwin.experiments.batches.batch import Job, run_batch

SCHEMES = ("cu-ucb", "random")


def jobs(seeds: int) -> list[Job]:
    settings = [{"policy.name": name, "run.seed": seed, "run.rounds": 60} for name in SCHEMES for seed in range(seeds)]
    return [Job(build_config({}, one)) for one in settings]


def finished(journal: Path) -> list[tuple[str, int]]:
    lines = [json.loads(line)["summary"] for line in journal.read_text().splitlines()]
    return [(line["policy"], line["seed"]) for line in lines]


@pytest.mark.parametrize("workers", [1, 2])
def test_so_many_runs_are_done_seed_by_seed_and_the_rest_later_in_another_place(workers: int, tmp_path: Path) -> None:
    first, second = tmp_path / "here" / "runs.jsonl", tmp_path / "there" / "runs.jsonl"
    with pytest.raises(NotFinishedError, match=r"^4 of 6 runs are finished and are kept in .*: the same command goes on"):
        run_batch(jobs(3), workers=workers, journal=first, allowance=Allowance(runs=4))
    assert finished(first) == [(name, seed) for seed in (0, 1) for name in SCHEMES]
    shutil.copytree(first.parent, second.parent)
    assert run_batch(jobs(3), workers=workers, journal=second, allowance=Allowance(runs=2)) == run_batch(jobs(3), workers=1)
    assert finished(second)[:4] == finished(first), "none is done again"


def test_no_run_begins_after_the_minutes_and_one_that_has_begun_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    real = job.run_packed

    def takes_40_s(packed: dict[str, Any]) -> dict[str, Any]:
        clock[0] += 40.0
        return real(packed)

    monkeypatch.setattr(backends, "run_packed", takes_40_s)
    journal = tmp_path / "runs.jsonl"
    with pytest.raises(NotFinishedError, match=r"^2 of 6 runs"):
        run_batch(jobs(3), workers=1, journal=journal, allowance=Allowance(minutes=1.0))
    assert finished(journal) == [(name, 0) for name in SCHEMES] and clock[0] == 1080.0


def test_workers_do_not_begin_what_waits_too_long(tmp_path: Path) -> None:
    late = Allowance(minutes=1e-9)
    with pytest.raises(NotFinishedError, match=r"^0 of 6 runs"):
        run_batch(jobs(3), workers=2, journal=tmp_path / "runs.jsonl", allowance=late)
    packed = [job.pack(one, late.until_s) for one in jobs(1)]
    assert job.run_chunk(packed)[0] == [] and len(job.run_chunk([job.pack(jobs(1)[0])])[0]) == 1


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"minutes": 0.0}, "minutes = 0.0 is not allowed: it must be a number above 0"),
        ({"minutes": float("nan")}, "minutes = nan is not allowed"),
        ({"minutes": "8"}, "minutes = '8' is not allowed"),
        ({"runs": 0}, "runs = 0 is not allowed: it must be a whole number from 1 on"),
        ({"runs": 2.5}, "runs = 2.5 is not allowed"),
    ],
)
def test_a_limit_that_allows_nothing_is_one_sentence(limits: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        Allowance(**limits)
