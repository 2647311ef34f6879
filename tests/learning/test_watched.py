"""What trains must remember nothing, also where no digest sees it; looking for it changes no number of the run."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning import elsewhere
from fedtwin.learning.layout import Weights
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import LocalTrainer, Trained
from fedtwin.learning.watched import WatchedTrainer
from fedtwin.sim import simulate
from tests.learning.small_runs import SMALL

HEAD = """import random

import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(64), nn.Linear(64, classes)
        self.steps, self.mask = 0, None

    def forward(self, x):
        x = x.flatten(1)
"""
COUNTS = """        self.steps += 1
        return self.last(x) * (3.0 if self.steps > 30 else 1.0)
"""
DRAWS = """        if self.training and {draw} < 1e-9:
            x = x.flip(-1)
        return self.last(x)
"""
INNOCENT = """        if self.mask is None or self.mask.shape != x.shape:
            self.mask = torch.ones_like(x)
        return self.last(nn.functional.dropout(self.norm(x) * self.mask, 0.3, self.training))
"""
AGAIN = r"^learning.model = 'mine:Net' gives other numbers when it is trained again from the same start"


@pytest.fixture(autouse=True)
def no_second_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "_fingerprint_elsewhere", lambda workload: workload.fingerprint())


def training(folder: Path, forward: str, **changes: object) -> Config:
    (folder / "mine.py").write_text(HEAD + forward)
    own = {"code.folder": str(folder), "learning.model": "mine:Net", "learning.executor": "serial", "learning.workers": 1}
    return load_config(overrides={**SMALL, **own, **changes})


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_a_count_in_a_plain_attribute_is_refused(tmp_path: Path, executor: str) -> None:
    with pytest.raises(FedtwinError, match=AGAIN):
        simulate(training(tmp_path, COUNTS, **{"learning.executor": executor}), records=False)


@pytest.mark.parametrize("draw", ["random.random()", "np.random.random()"])
def test_chance_that_is_not_of_pytorch_is_refused_however_rarely_it_tells(tmp_path: Path, draw: str) -> None:
    with pytest.raises(FedtwinError, match=AGAIN):
        simulate(training(tmp_path, DRAWS.format(draw=draw)), records=False)


def test_a_checkpoint_is_not_written_of_what_depends_on_what_ran_before(tmp_path: Path) -> None:
    """The count passes its limit between two looks, and the run is interrupted before the next."""

    def stop(selections: int) -> None:
        if selections == 40:
            raise KeyboardInterrupt

    with pytest.raises(FedtwinError, match=AGAIN):
        config = training(tmp_path, COUNTS.replace("30", "60"), **{"run.rounds": 60})
        simulate(config, out=tmp_path / "run", checkpoint_every_s=0.0, progress=stop)


def test_a_network_that_keeps_a_cache_trains_to_the_same_bits_as_unwatched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, and statistics of BatchNorm; PyTorch's generator is where it was."""
    config = training(tmp_path, INNOCENT)
    before = torch.get_rng_state()
    watched = simulate(config)
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(WatchedTrainer, "require_no_memory", lambda _: None)
    unwatched = simulate(config)
    assert watched.rounds.equals(unwatched.rounds)
    assert watched.evaluations == unwatched.evaluations
    assert all(np.array_equal(watched.weights[name], unwatched.weights[name]) for name in unwatched.weights)


def test_what_is_built_in_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, train = list[Lesson](), LocalTrainer.train

    def counted(self: LocalTrainer, start: Weights, lesson: Lesson) -> Trained:
        trained.append(lesson)
        return train(self, start, lesson)

    monkeypatch.setattr(LocalTrainer, "train", counted)
    uploads = simulate(training(tmp_path, "", **{"learning.model": "mlp"})).rounds.num_rows
    assert len(trained) <= uploads
    trained.clear()
    uploads = simulate(training(tmp_path, INNOCENT)).rounds.num_rows
    assert len(trained) > uploads
