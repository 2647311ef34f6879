"""Sensor data that is made up: the same for a seed, and worth a fleet."""

import re
from pathlib import Path

import numpy as np
import pytest

from fedtwin.config import LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.data import load_dataset
from fedtwin.learning.data.sensors import Target, make_sensors
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Images, LocalTrainer, initial_weights
from fedtwin.learning.models import build_model
from tests.conftest import Cli


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    first, again, other = (
        make_sensors(tmp_path / name, seed=seed, samples=20) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert [path.name for path in first] == ["board-1.npz", "board-2.npz", "board-3.npz", "board-4.npz", "test.npz"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert all(one.read_bytes() != two.read_bytes() for one, two in zip(first, other, strict=True))
    with pytest.raises(FedtwinError, match=r"exists already"):
        make_sensors(tmp_path / "a")


@pytest.mark.parametrize(
    ("task", "epochs", "together", "alone"),
    [
        pytest.param("classification", 10, 0.88, 0.8, marks=pytest.mark.slow),
        pytest.param("classification", 20, 0.95, 0.8, marks=pytest.mark.slow),
        pytest.param("multilabel", 20, 0.93, 0.8, marks=pytest.mark.slow),
        pytest.param("regression", 20, 16.0, 19.0, marks=pytest.mark.slow),
    ],
)
def test_all_boards_together_learn_what_none_does_alone(
    tmp_path: Path, task: Target, epochs: int, together: float, alone: float
) -> None:
    make_sensors(tmp_path / "s", task)
    learning = LearningConfig(
        task=task, dataset=str(tmp_path / "s"), model="tcn", optimiser="adam", learning_rate=0.005, proximal=0.0
    )
    data = load_dataset(learning.dataset, learning)
    assert (data.shape, data.outputs) == ((2, 128), {"classification": 4, "multilabel": 3, "regression": 1}[task])
    network = build_model("tcn", data.shape, data.outputs, 0)
    start, trainer = initial_weights(network), LocalTrainer(network, Images(data), learning)
    assert data.clients is not None
    found = []
    for samples, times in ((np.arange(len(data.clients)), epochs), (np.flatnonzero(data.clients == 0), 2 * epochs)):
        order = np.stack([np.random.default_rng(epoch).permutation(samples) for epoch in range(times)])
        found.append(trainer.evaluate(trainer.train(start, Lesson(order, 0.005)).weights).test_metric)
    assert found[0] < together < alone < found[1] if task == "regression" else found[0] > together > alone > found[1]


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    done = cli("data", "make-sensors", "plant", "--boards", "2", "--samples", "10", "--task", "multilabel")
    assert done.returncode == 0 and re.findall(r"\S+\.npz", done.stdout) == [
        f"plant/{n}.npz" for n in ("board-1", "board-2", "test")
    ]
    with np.load(tmp_path / "plant" / "board-2.npz") as arrays:
        assert arrays["x_train"].shape == (10, 2, 128) and arrays["y_train"].shape == (10, 3)
