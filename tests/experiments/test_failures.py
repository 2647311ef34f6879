"""Runs that fail: rows of their own in a sweep, one sentence that names them elsewhere; the others are not lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from fedtwin.config import build_config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.experiments.batches.batch import Job, run_batch
from fedtwin.experiments.sweep import sweep
from tests.conftest import FEDTWIN, LIMIT_S, run_cli, until, write_slow_policy
from tests.experiments.faults import FAULTS, write_faulty_policy

SPEC = 'schemes = ["faulty:POLICY", "CU-UCB"]\nseeds = 3\nrounds = 20\n[grid]\n"policy.v" = [1e4, 1e5]\n'
NUMBERS = ["mean_cost", "rounds", "declines", "total_queue", "virtual_time_s"]


def write_spec(folder: Path, fault: str, text: str = SPEC) -> None:
    write_faulty_policy(folder, fault)
    (folder / "spec.toml").write_text(text, encoding="utf-8")


def table_in(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "summaries.parquet")


@pytest.mark.parametrize(("fault", "workers"), [*((fault, 1) for fault in FAULTS), ("it leaves", 2)])
def test_a_run_that_fails_is_a_row_with_its_reason_and_the_others_finish(tmp_path: Path, fault: str, workers: int) -> None:
    text, words = FAULTS[fault]
    write_spec(tmp_path, text)
    done = run_cli("sweep", "spec.toml", "--out", "out", "--workers", workers, cwd=tmp_path)
    assert done.returncode == 3 and done.stdout == "12 runs: out/summaries.parquet\n"
    table = table_in(tmp_path / "out")
    wrong = (table["scheme"] == "faulty:POLICY") & (table["seed"] == 1)
    assert list(table["failed"].notna()) == list(wrong) and wrong.sum() == 2
    assert table.loc[wrong, "failed"].str.contains(words).all() and table.loc[wrong, NUMBERS].isna().all(axis=None)
    assert table.loc[~wrong, NUMBERS].notna().all(axis=None) and table["config_hash"].nunique() == 12
    sentence = "2 of 12 runs failed, the first was policy.v = 10000.0, faulty:POLICY, seed 1"
    assert sentence in done.stderr and words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_the_table_of_the_others_is_that_of_a_sweep_in_which_none_fails(tmp_path: Path) -> None:
    write_spec(tmp_path, "raise KeyError('x')")
    run_cli("sweep", "spec.toml", "--out", "out", "--workers", 1, cwd=tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC.replace('"faulty:POLICY", ', ""), encoding="utf-8")
    assert run_cli("sweep", "spec.toml", "--out", "whole", "--workers", 1, cwd=tmp_path).returncode == 0
    some = table_in(tmp_path / "out").query("scheme == 'CU-UCB'").drop(columns="policy_code").reset_index(drop=True)
    whole = table_in(tmp_path / "whole")
    assert list(some.columns) == list(whole.columns) and whole["failed"].isna().all()
    pd.testing.assert_frame_equal(some, whole, check_dtype=False)


def test_only_the_failed_ones_are_done_again(tmp_path: Path) -> None:
    """The runs fail for want of a file, which comes later."""
    write_spec(tmp_path, "os.stat('wanted')")
    first = run_cli("sweep", "spec.toml", "--out", "out", "--workers", 1, cwd=tmp_path)
    assert first.returncode == 3 and "--retry-failed" in first.stderr
    refused = run_cli("sweep", "spec.toml", "--out", "out", cwd=tmp_path)
    assert refused.returncode == 2 and "or --retry-failed" in refused.stderr
    in_vain = run_cli("sweep", "spec.toml", "--out", "out", "--workers", 1, "--retry-failed", cwd=tmp_path)
    assert in_vain.returncode == 3 and in_vain.stderr.startswith("Going on: 10 of 12 runs are finished already.\n")
    before = table_in(tmp_path / "out")
    (tmp_path / "wanted").touch()
    again = run_cli("sweep", "spec.toml", "--out", "out", "--workers", 1, "--retry-failed", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "Going on: 10 of 12 runs are finished already.\n")
    after = table_in(tmp_path / "out")
    assert after["failed"].isna().all() and not (tmp_path / "out" / "unfinished.jsonl").exists()
    fine = before["failed"].isna()
    pd.testing.assert_frame_equal(before[fine], after[fine], check_dtype=False)
    nothing = run_cli("sweep", "spec.toml", "--out", "out", "--retry-failed", cwd=tmp_path)
    assert nothing.returncode == 2 and "no run of it had an error" in nothing.stderr


def test_retrying_is_not_for_another_spec(tmp_path: Path) -> None:
    write_spec(tmp_path, "raise KeyError('x')")
    run_cli("sweep", "spec.toml", "--out", "out", "--workers", 1, cwd=tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC.replace("seeds = 3", "seeds = 2"), encoding="utf-8")
    before = (tmp_path / "out" / "summaries.parquet").read_bytes()
    done = run_cli("sweep", "spec.toml", "--out", "out", "--retry-failed", cwd=tmp_path)
    assert done.returncode == 2 and "sweep.toml" in done.stderr and "--overwrite" in done.stderr
    assert (tmp_path / "out" / "summaries.parquet").read_bytes() == before


def test_runs_in_which_everybody_declined_are_marked_and_not_done_again(tmp_path: Path) -> None:
    text = 'schemes = ["CU-UCB"]\nseeds = 2\nrounds = 20\n[grid]\n"objective.max_energy_j" = [0.01, 4.5]\n'
    (tmp_path / "spec.toml").write_text(text, encoding="utf-8")
    done = run_cli("sweep", "spec.toml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 3 and "2 of 4 runs" in done.stderr and "objective.max_energy_j = 0.01 is too tight" in done.stderr
    table = table_in(tmp_path / "out")
    assert list(table["failed"].notna()) == [True, True, False, False] and list(table["rounds"]) == [0, 0, 20, 20]
    assert not (tmp_path / "out" / "unfinished.jsonl").exists() and "--retry-failed" not in done.stderr


def test_a_run_that_kills_its_worker_is_the_only_one_that_fails(tmp_path: Path) -> None:
    write_spec(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    done = run_cli("sweep", "spec.toml", "--out", "out", "--workers", 2, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    table = table_in(tmp_path / "out")
    wrong = (table["scheme"] == "faulty:POLICY") & (table["seed"] == 1)
    assert list(table["failed"].notna()) == list(wrong)
    assert table.loc[wrong, "failed"].str.contains("worker process was killed").all()
    assert "Traceback" not in done.stderr and "each in a process of its own" in done.stderr


def test_a_killer_that_is_the_only_run_left_does_not_end_the_command(tmp_path: Path) -> None:
    write_spec(tmp_path, "os._exit(0)", 'schemes = ["faulty:POLICY"]\nseeds = [1]\nrounds = 20\n')
    done = run_cli("sweep", "spec.toml", "--out", "out", "--workers", 2, cwd=tmp_path)
    assert done.returncode == 3 and "1 of 1 runs failed" in done.stderr, done.stderr


SCRIPT = """print('this script is run')
import fedtwin
from slow import score
from fedtwin.policies import Policy
POLICY = Policy(score, power='optimal')
found = fedtwin.compare(schemes='{scheme}', seeds=9, settings={{'run.rounds': 40}}, workers=2)
print(len(found.to_pandas()), 'runs')
"""


@pytest.mark.parametrize("scheme", ["slow:POLICY", "__main__:POLICY"])
def test_a_script_needs_no_guard_and_is_run_once(tmp_path: Path, scheme: str) -> None:
    """Python's own worker processes would run it again; a policy of the script itself is run in its process."""
    write_slow_policy(tmp_path)
    (tmp_path / "slow").unlink()
    (tmp_path / "script.py").write_text(SCRIPT.format(scheme=scheme), encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "this script is run\n9 runs\n", "")


def test_a_script_that_names_a_policy_of_its_own_file_does_not_start_itself_again_and_again(tmp_path: Path) -> None:
    """Workers import the file for the policy: what starts runs in it must be guarded, and is refused there otherwise."""
    write_slow_policy(tmp_path)
    (tmp_path / "slow").unlink()
    text = SCRIPT.format(scheme="script:POLICY")
    (tmp_path / "script.py").write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1 and "put what starts runs under if __name__ == '__main__'" in done.stderr.splitlines()[-1]
    guarded = text.replace("found =", "if __name__ == '__main__': found =").replace(
        "print(len", "if __name__ == '__main__': print(len"
    )
    (tmp_path / "script.py").write_text(guarded, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and done.stdout.endswith("9 runs\n"), done.stderr


def test_workers_that_cannot_start_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_slow_policy(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "sitecustomize.py").write_text("import os, sys\nif '--multiprocessing-fork' in sys.argv: os._exit(1)\n")
    done = run_cli("compare", "--schemes", "slow:POLICY", "--rounds", 40, "--workers", 2, cwd=tmp_path)
    assert done.returncode == 2 and "error: Worker processes end before they do anything" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_worker_killed_from_outside_costs_nothing(tmp_path: Path) -> None:
    write_slow_policy(tmp_path)
    (tmp_path / "spec.toml").write_text('schemes = ["slow:POLICY"]\nseeds = 30\nrounds = 40\n', encoding="utf-8")
    command = [*FEDTWIN, "sweep", "spec.toml", "--out", "out", "--workers", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        pytest.skip("this system does not list the children of a process")
    journal = tmp_path / "out" / "unfinished.jsonl"
    until(lambda: journal.exists() and len(journal.read_text().splitlines()) >= 4, "four runs", process)
    os.kill(int(children.read_text().split()[-1]), signal.SIGKILL)
    (tmp_path / "slow").unlink()
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and errors.startswith("warning: A worker process was killed"), errors
    assert run_cli("sweep", "spec.toml", "--out", "calm", cwd=tmp_path).returncode == 0
    assert (tmp_path / "out" / "summaries.parquet").read_bytes() == (tmp_path / "calm" / "summaries.parquet").read_bytes()


@pytest.mark.parametrize("fault", ["raise KeyError('x')", "os._exit(1)"])
def test_a_comparison_names_the_run_that_failed_and_keeps_the_finished_ones(tmp_path: Path, fault: str) -> None:
    policy = write_faulty_policy(tmp_path, fault, seed=2)
    command = ["compare", "--schemes", f"CU-UCB,{policy}", "--seeds", 3, "--rounds", 20, "--set", "policy.v=5e4"]
    done = run_cli(*command, "--out", "out", "--workers", 2, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    error = done.stderr.splitlines()[-1]
    assert error.startswith("error: faulty:POLICY, seed 2") and "policy.v = 50000.0" in error, error
    assert "out/unfinished.jsonl" in error and len((tmp_path / "out" / "unfinished.jsonl").read_text().splitlines()) >= 3
    write_faulty_policy(tmp_path, "pass", seed=2)
    again = run_cli(*command, "--out", "out", cwd=tmp_path)
    assert again.returncode == 0 and (tmp_path / "out" / "comparison.json").exists()


def test_a_failure_in_a_batch_is_not_kept_and_a_second_try_may_do(tmp_path: Path) -> None:
    impossible = {"objective.min_mean_samples": 4.0, "run.rounds": 5, "run.seed": 3}
    jobs = [Job(build_config({}, {"run.rounds": 5})), Job(build_config({}, impossible), stationary=True)]
    for _ in range(2):
        with (
            pytest.warns(FedtwinWarning, match="cannot be met"),
            pytest.raises(FedtwinError, match=r"CU-UCB, seed 3, .*min_mean_samples = 4\.0.*No stationary policy"),
        ):
            run_batch(jobs, workers=1, journal=tmp_path / "runs.jsonl")
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1


def test_from_python_the_failures_are_in_the_table_and_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    write_faulty_policy(tmp_path, "raise KeyError('x')", name="faulty_here")
    (tmp_path / "spec.toml").write_text(SPEC.replace("faulty", "faulty_here"), encoding="utf-8")
    found = sweep(tmp_path / "spec.toml", out=tmp_path / "out", workers=1)
    assert found.to_pandas()["failed"].notna().sum() == 2 and table_in(tmp_path / "out").equals(found.to_pandas())
    assert found.failures is not None and found.failures.startswith("2 of 12 runs failed")
