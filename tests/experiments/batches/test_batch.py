import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.config import build_config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.batches import backends, job
from fedtwin.experiments.batches.batch import Job, run_batch
from tests.conftest import FEDTWIN, LIMIT_S, hears_interrupts, mostly_slow, run_cli, until, write_slow_policy


def jobs(count: int, rounds: int = 120) -> list[Job]:
    names = ["cu-ucb", "Sy-fairness"]
    return [
        Job(build_config({}, {"run.seed": k, "run.rounds": rounds, "policy.name": names[k % 2]}), (1, min(50, rounds), rounds))
        for k in range(count)
    ]


def test_no_number_depends_on_the_workers() -> None:
    assert run_batch(jobs(5), workers=1) == run_batch(jobs(5), workers=2) == run_batch(jobs(5), workers=3)


def test_outcomes_come_in_the_order_of_the_jobs_and_duplicates_run_once() -> None:
    told: list[int] = []
    outcomes = run_batch([*jobs(4), jobs(1)[0]], workers=2, progress=told.append)
    assert [outcome.summary["seed"] for outcome in outcomes] == [0, 1, 2, 3, 0]
    assert outcomes[0] == outcomes[4] and sum(told) == 5


def test_a_journal_is_gone_on_with_and_a_cut_line_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "runs.jsonl"
    expected = run_batch(jobs(4), workers=1, journal=journal)
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(lines[:2]) + "\n" + lines[2][:40])
    ran: list[str] = []
    real = job.run_packed

    def counted(packed: dict[str, Any]) -> dict[str, Any]:
        ran.append(packed["key"])
        return real(packed)

    monkeypatch.setattr(backends, "run_packed", counted)
    with pytest.warns(FedtwinWarning, match="1 line of .* is damaged"):
        assert run_batch(jobs(4), workers=1, journal=journal) == expected
    assert ran == [job.key for job in jobs(4)[2:]]
    with pytest.warns(FedtwinWarning, match="1 line of .* is damaged"):
        assert run_batch(jobs(4), workers=1, journal=journal) == expected and len(ran) == 2


def test_a_journal_of_other_runs_is_not_believed(tmp_path: Path) -> None:
    journal = tmp_path / "runs.jsonl"
    run_batch(jobs(2, rounds=60), workers=1, journal=journal)
    assert run_batch(jobs(2), workers=1, journal=journal) == run_batch(jobs(2), workers=1)


def test_warnings_come_once_and_before_the_work() -> None:
    asking = [Job(build_config({}, {"objective.min_mean_samples": 9.0, "run.rounds": 2, "run.seed": k})) for k in range(3)]
    with pytest.warns(FedtwinWarning, match=r"min_mean_samples = 9 .*\(3 of 3 runs") as caught:
        run_batch(asking, workers=1)
    assert len(caught) == 1


def test_a_batch_says_once_what_its_runs_would_say_of_rates_and_networks(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n\n\ndef net(inputs, outputs):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, outputs))\n"
    )
    given: dict[str, object] = {
        "learning.dataset": "digits",
        "learning.model": "mine:net",
        "code.folder": str(tmp_path),
        "run.mode": "sync",
    }
    given |= {"run.rounds": 30, "learning.rate_schedule": "linear", "learning.rate_rounds": 1}
    given |= {"learning.aggregation": "fedavgm", "radio.update_bits": "model"}
    with pytest.warns(FedtwinWarning) as caught:
        run_batch([Job(build_config({}, {**given, "run.seed": seed})) for seed in (1, 2)], workers=1)
    beyond, past = sorted((str(one.message) for one in caught), reverse=True)
    assert past.startswith("Round 2 is past the 1 rounds of learning.rate_schedule = 'linear'")
    assert beyond.startswith("learning.aggregation = 'fedavgm' can step beyond what any device uploads")


def test_a_journal_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedtwinError, match="cannot be written"):
        run_batch(jobs(1), journal=tmp_path / "file" / "runs.jsonl")


def test_a_comparison_interrupted_without_a_folder_says_what_is_lost(tmp_path: Path) -> None:
    name, asked = write_slow_policy(tmp_path), tmp_path / "asked"
    policy = tmp_path / "slow.py"
    noted = f"with open({str(asked)!r}, 'a') as file:\n            file.write('.')"
    policy.write_text(policy.read_text().replace("time.sleep(0.001)", noted))
    command = [*FEDTWIN, "compare", "--seeds", "50", "--rounds", "40", "--schemes", name, "--workers", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=hears_interrupts)
    until(lambda: asked.exists() and asked.stat().st_size > 2 * 40 * 30, "two runs or more", process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130 and "Finished runs are lost: with --out DIR (out=DIR) they would be kept" in errors, errors


@pytest.mark.parametrize("moment", ["imports", "workers start"])
def test_an_interruption_is_quiet_whenever_it_comes(tmp_path: Path, moment: str) -> None:
    """Imports are told by Python itself, the start of workers by the folder that is made before."""
    options = ["-X", "importtime"] if moment == "imports" else []
    arguments = ["compare", "--seeds", "50", "--rounds", "50000", "--out", "out"]
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *options, "-m", "fedtwin", *arguments],
            cwd=tmp_path, stderr=errors, start_new_session=True, preexec_fn=hears_interrupts,
        )  # fmt: skip
    said, out = tmp_path / "errors", tmp_path / "out"
    try:
        until(lambda: out.exists() or (options and " numpy.linalg" in said.read_text()), moment, process)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(LIMIT_S) == 130, said.read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in said.read_text() and said.read_text().rstrip().endswith("interrupted"), said.read_text()


@pytest.mark.parametrize("how", mostly_slow([signal.SIGKILL, signal.SIGINT], signal.SIGKILL))
def test_an_ended_comparison_goes_on_where_it_stopped(tmp_path: Path, how: signal.Signals) -> None:
    command = ["compare", "--seeds", "24", "--rounds", "40", "--schemes", write_slow_policy(tmp_path), "--out", "out", "--json"]
    journal = tmp_path / "out" / "unfinished.jsonl"
    process = subprocess.Popen(
        [*FEDTWIN, *command],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hears_interrupts,
    )
    until(lambda: journal.exists() and len(journal.read_text().splitlines()) >= 4, "four runs", process)
    os.killpg(process.pid, how)
    _, errors = process.communicate(timeout=LIMIT_S)
    finished = [line for line in journal.read_text().splitlines() if line.endswith("}")]
    assert 4 <= len(finished) < 24 and not (tmp_path / "out" / "comparison.json").exists()
    if how == signal.SIGINT:
        assert process.returncode == 130 and "goes on from there" in errors and "Traceback" not in errors
    (tmp_path / "slow").unlink()
    again = run_cli(*command, cwd=tmp_path)
    fresh = run_cli(*command[:-3], "--json", cwd=tmp_path)
    assert again.returncode == 0 and again.stdout == fresh.stdout
    assert not journal.exists() and (tmp_path / "out" / "comparison.json").exists()


def test_samples_that_devices_must_share_are_told_once(tmp_path: Path) -> None:
    x, y = (np.arange(2560) % 256).astype(np.uint8).reshape(40, 8, 8), np.arange(40) % 4
    np.savez(tmp_path / "few.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    settings = {"learning.dataset": str(tmp_path / "few.npz"), "learning.owned_samples": 8, "run.rounds": 2}
    few = [Job(build_config({}, {**settings, "run.seed": seed})) for seed in (1, 2)]
    with pytest.warns(FedtwinWarning, match=r"30 devices own 8 samples each, 240 in all, .* has 40 .* 40 of them") as caught:
        run_batch(few, workers=1)
    assert len(caught) == 1
