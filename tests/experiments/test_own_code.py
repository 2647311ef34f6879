"""Code of the user's own that changes between a kill and the next start: no table and no run is made of two codes."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from fedtwin.config import load_config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.sweep import Sweep
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
        Sweep(tmp_path / "spec.toml", tmp_path / "out").run(workers=1, progress=stop)
    kept = Sweep(tmp_path / "spec.toml", tmp_path / "out").begun()
    assert kept is not None and "of 12 runs are finished already" in kept and not kept.startswith("Going on: 0 ")
    write(tmp_path, constants="SIGN = -1.0\n")
    again = Sweep(tmp_path / "spec.toml", tmp_path / "out")
    assert str(again.begun()).startswith("Going on: 0 of 12")
    again.run(workers=1)
    Sweep(tmp_path / "spec.toml", tmp_path / "fresh").run(workers=1)
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
