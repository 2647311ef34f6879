"""The constants of Theorem 1 as they are met along a training."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedtwin.config import load_config
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors import Workload, make_workload
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.probe import Probe

ORDER = np.arange(12, dtype=np.int64).reshape(1, 12)


def workload(batch_size: int) -> Workload:
    settings = {"learning.dataset": "digits", "learning.batch_size": batch_size, "learning.proximal": 2.0}
    config = load_config(overrides={**settings, "learning.learning_rate": 0.1})
    data = load_dataset("digits")
    return make_workload(config, data.shape, data.outputs)


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_walk_ends_where_the_training_does(batch_size: int) -> None:
    work = workload(batch_size)
    _, start = work.initial()
    probe = Probe(work)
    probe.submit(1, start, Lesson(ORDER, 0.1))
    end = probe.walk(start, ORDER)
    trained = probe.result(1).weights.floats
    probe.close()
    assert np.linalg.norm(end.numpy() - trained) < 1e-5 * np.linalg.norm(trained - start.floats)
    assert probe.constants.moved2 == pytest.approx(float(np.sum((trained - start.floats) ** 2)), rel=1e-4)


def test_the_first_step_by_hand() -> None:
    work = workload(1)
    data = load_dataset("digits")
    _, start = work.initial()
    by = data.normalisation()
    mean, std = np.array(by.mean, np.float32), np.array(by.std, np.float32)
    x = torch.tensor(((data.x_train[:1].astype(np.float32) - mean) / std).transpose(0, 3, 1, 2))
    label = torch.tensor(data.y_train[:1].astype(np.int64))
    network = work.network()

    def gradient() -> torch.Tensor:
        found = torch.autograd.grad(functional.cross_entropy(network(x), label), list(network.parameters()))
        return torch.cat([part.reshape(-1) for part in found])

    first = gradient()
    with torch.no_grad():
        at = 0
        for parameter in network.parameters():
            parameter.sub_(0.1 * first[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()
    change = float((gradient() - first).norm() / (0.1 * first).norm())
    probe = Probe(work)
    probe.walk(start, ORDER[:, :1])
    probe.close()
    assert probe.constants.a1 == probe.constants.a2 == pytest.approx(float(first @ first), rel=1e-5)
    assert probe.constants.beta == pytest.approx(change, rel=1e-3)
