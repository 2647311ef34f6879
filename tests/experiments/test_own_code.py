"""Code of the user's own that changes between a kill and the next start: no table and no run is made of two codes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from fedtwin.config import load_config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.batches.job import Job, outcome_of, pack, run_packed
from fedtwin.experiments.compare import compare_folders
from fedtwin.experiments.sweep import sweep
from fedtwin.sim import resume, simulate

POLICY = """from fedtwin.policies import Policy
from constants import SIGN

def score(view, knobs):
    return SIGN * view.queue

POLICY = Policy(score, power="max")
"""
SPEC = "schemes = ['mine:POLICY']\nseeds = 12\nrounds = 60\n"
NETWORK = """from torch import nn
from sizes import HIDDEN, activation

def network(shape, classes):
    pixels = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, HIDDEN), activation(), nn.Linear(HIDDEN, classes))
"""


class StoppedError(Exception):
    """In place of a kill."""


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def test_a_constant_flipped_after_a_kill_is_another_sweep(tmp_path: Path) -> None:
    write(tmp_path, mine=POLICY, constants="SIGN = 1.0\n")
    (tmp_path / "spec.toml").write_text(SPEC)
    done = 0

    def stop(more: int) -> None:
        nonlocal done
        done += more
        if done >= 5:
            raise StoppedError

    with pytest.raises(StoppedError):
        sweep(tmp_path / "spec.toml", out=tmp_path / "out", workers=1, progress=stop)
    assert len((tmp_path / "out" / "unfinished.jsonl").read_text().splitlines()) >= 5
    write(tmp_path, constants="SIGN = -1.0\n")
    said: list[str] = []
    sweep(tmp_path / "spec.toml", out=tmp_path / "out", workers=1, say=said.append)
    assert len(said) == 1 and said[0].startswith("Going on: 0 of 12")
    sweep(tmp_path / "spec.toml", out=tmp_path / "fresh", workers=1)
    found, fresh = (pd.read_parquet(tmp_path / name / "summaries.parquet") for name in ("out", "fresh"))
    assert found.equals(fresh) and found["policy_code"].nunique() == 1


def test_a_helper_of_a_model_changed_after_a_kill_does_not_enter_the_resumed_run(tmp_path: Path) -> None:
    """The run goes on with the source it keeps; where that is touched, it says so."""
    write(tmp_path, nets=NETWORK, sizes="from torch.nn import ReLU as activation\nHIDDEN = 12\n")
    (tmp_path / "mine.toml").write_text("[learning]\nmodel = 'nets:network'\nexecutor = 'serial'\n[run]\nrounds = 40\n")
    config = load_config(tmp_path / "mine.toml")
    whole = simulate(config, out=tmp_path / "whole")

    def stop(done: int) -> None:
        if done > 20:
            raise StoppedError

    for name in ("killed", "touched"):
        with pytest.raises(StoppedError):
            simulate(config, out=tmp_path / name, progress=stop, checkpoint_every_s=0.0)
    write(tmp_path, sizes="from torch.nn import Tanh as activation\nHIDDEN = 12\n")
    resumed = resume(tmp_path / "killed")
    assert resumed.summary == whole.summary and resumed.identity == whole.identity
    assert (tmp_path / "killed" / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()
    write(tmp_path / "touched" / "code", sizes="from torch.nn import Tanh as activation\nHIDDEN = 12\n")
    with pytest.raises(FedtwinError, match=r"config\.toml, or a file or code it names, has changed since the run began"):
        resume(tmp_path / "touched")


def test_the_workers_of_a_sweep_load_the_code_beside_its_spec(tmp_path: Path) -> None:
    write(tmp_path, mine=POLICY, constants="SIGN = 1.0\n")
    (tmp_path / "spec.toml").write_text(SPEC.replace("rounds = 60", "rounds = 1500"))
    command = [
        sys.executable,
        "-m",
        "fedtwin",
        "sweep",
        str(tmp_path / "spec.toml"),
        "--out",
        str(tmp_path / "out"),
        "--workers",
        "2",
    ]
    said = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert len(pd.read_parquet(tmp_path / "out" / "summaries.parquet")) == 12


def test_a_worker_with_other_code_than_the_command_fails_its_runs(tmp_path: Path) -> None:
    """As if the file had been edited after the command read it."""
    write(tmp_path, mine=POLICY, constants="SIGN = 1.0\n")
    (tmp_path / "mine.toml").write_text("[policy]\nname = 'mine:POLICY'\n[run]\nrounds = 30\n")
    packed = pack(Job(load_config(tmp_path / "mine.toml")))
    assert outcome_of(run_packed(packed)).failed is None
    write(tmp_path, constants="SIGN = -1.0\n")
    load_config(tmp_path / "mine.toml")
    assert "is not what it was when the command began" in str(outcome_of(run_packed(packed)).failed)


def test_folders_made_by_other_code_are_not_averaged(tmp_path: Path) -> None:
    for name, sign, seed in (("one", 1.0, 0), ("two", -1.0, 0), ("more", 1.0, 1)):
        write(tmp_path, mine=POLICY, constants=f"SIGN = {sign}\n")
        (tmp_path / "mine.toml").write_text("[policy]\nname = 'mine:POLICY'\n[run]\nrounds = 30\n")
        simulate(load_config(tmp_path / "mine.toml", {"run.seed": seed}), out=tmp_path / name)
    found = compare_folders([tmp_path / "one", tmp_path / "two", tmp_path / "more"])
    assert sorted(len(seeds) for seeds in found.summaries.values()) == [1, 2]
    assert all(name.startswith("mine:POLICY [") for name in found.summaries)


def test_a_sweeps_folder_is_enough_to_repeat_it(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    write(tmp_path / "from", mine=POLICY, constants="SIGN = 1.0\n")
    (tmp_path / "from" / "spec.toml").write_text(SPEC)
    sweep(tmp_path / "from" / "spec.toml", out=tmp_path / "out", workers=1)
    shutil.rmtree(tmp_path / "from")
    sweep(tmp_path / "out" / "sweep.toml", out=tmp_path / "again", workers=1)
    found = [(tmp_path / name / "summaries.parquet").read_bytes() for name in ("out", "again")]
    assert found[0] == found[1]
