"""Training workers: what they load is what the run began with, and none of them may remember what it trained."""

import importlib
import sys
from pathlib import Path

import pytest

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.sim import simulate
from tests.learning.small_runs import SMALL

NET = """import itertools

from torch import nn
from torch.nn.functional import cross_entropy

SCALE, STEPS = 1.0, itertools.count()


class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        return SCALE * self.last(x.flatten(1))


def loss(outputs, targets):
    return SCALE * cross_entropy(outputs, targets, reduction="none")


def late(outputs, targets):
    global SCALE
    if next(STEPS) > 40:
        SCALE = 2.0
    return loss(outputs, targets)
"""
OTHER_CODE = r"^learning.model = '\w+:Net' is other code in a training worker than in the process that began the run"


def training(**changes: object) -> Config:
    workers = {"learning.executor": "processes", "learning.workers": 1, "run.rounds": 10}
    return load_config(overrides={**SMALL, **workers, **changes})


def test_a_file_edited_between_two_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    config = training(**{"code.folder": str(tmp_path), "learning.model": "net:Net"})
    simulate(config, records=False)
    (tmp_path / "net.py").write_text(NET.replace("1.0, ", "4.0, "))
    with pytest.raises(FedtwinError, match=OTHER_CODE):
        simulate(config, records=False)


def test_a_value_set_in_this_process_only_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "given.py").write_text(NET)
    monkeypatch.syspath_prepend(str(tmp_path))
    given = importlib.import_module("given")
    monkeypatch.setitem(sys.modules, "given", given)
    config = training(**{"learning.loss": "given:loss"})
    assert simulate(config, model=given.Net, records=False).summary.rounds == 10, "an object that workers find trains there"
    monkeypatch.setattr(given, "SCALE", 4.0)
    with pytest.raises(FedtwinError, match=OTHER_CODE.replace("model", "loss").replace("Net", "loss")):
        simulate(config, records=False)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_worker_comes_to_remember_late_is_refused_at_the_end(tmp_path: Path, workers: int) -> None:
    """Between two looks, which are ever farther apart, and in each of the workers."""
    (tmp_path / "net.py").write_text(NET)
    rounds = {"learning.workers": workers, "run.rounds": 25 * workers}
    with pytest.raises(FedtwinError, match=r"^learning.loss = 'net:late' changes something of its own while it runs"):
        simulate(training(**{"code.folder": str(tmp_path), "learning.loss": "net:late", **rounds}), records=False)
