"""Compression in a simulation: what is mixed in is what arrives, and what is left out stays with its device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedtwin.config import Config, load_config
from fedtwin.learning.compression import compressor_of
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors import make_workload
from fedtwin.learning.executors.cuda import Hub
from fedtwin.learning.executors.cuda_trainers import make_trainer
from fedtwin.learning.layout import Floats, Weights
from fedtwin.learning.learner import Learner
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Evaluated, Trained
from fedtwin.sim import simulate


def training(**changes: Any) -> Config:
    base = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 40, "learning.evaluate_every_s": 2.0}
    return load_config(overrides={**base, **changes})


class Changing:
    """An executor whose trainings are given changes, each to the model it began with."""

    def __init__(self, change: Callable[[int, int], Floats]) -> None:
        self._change, self._starts = change, dict[int, Weights]()

    def adopt(self, weights: Weights) -> Weights:
        return weights

    host = adopt

    def submit(self, key: int, start: Weights, lesson: Lesson) -> None:  # noqa: ARG002
        self._starts[key] = start

    def result(self, key: int) -> Trained:
        start = self._starts.pop(key)
        floats = start.floats + self._change(key, len(start.floats))
        return Trained(Weights(floats, start.counters), 1.0, bool(np.isfinite(floats).all()))

    def submit_evaluation(self, key: int, weights: Weights) -> None: ...

    def evaluation(self, key: int) -> Evaluated:  # noqa: ARG002
        return Evaluated(1.0, 0.5)

    def require_no_memory(self) -> None: ...

    def close(self) -> None: ...


def drawn(key: int, size: int) -> Floats:
    return np.random.default_rng(key).normal(size=size).astype(np.float32)


@pytest.mark.parametrize("compress", ["int8", "top-k"])
def test_what_is_left_out_is_added_to_the_next_change_of_the_same_device(compress: str) -> None:
    config = training(**{"learning.compress": compress, "learning.mixing": 1.0, "learning.staleness": "constant"})
    assert config.learning is not None
    learner = Learner(config, [80] * 30, executor=Changing(drawn))
    both = compressor_of(config.learning, learner.layout)
    assert both is not None
    errors: dict[int, Floats | None] = {4: None, 9: None}
    for key, device in enumerate([4, 9, 4, 4, 9], start=1):
        start = learner.model
        learner.downloaded(device, key)
        learner.uploaded(device, key, 0.0)
        sent = both.send(start, Weights(start.floats + drawn(key, len(start.floats)), start.counters), errors[device])
        errors[device] = sent.left_out
        arrived = both.receive(start, sent.parts).floats
        np.testing.assert_allclose(learner.model.floats, arrived, atol=1e-6)
    left_out = learner.state(9).left_out
    assert set(left_out) == {4, 9} and all(np.array_equal(left_out[device], errors[device]) for device in errors)  # type: ignore[arg-type]


def test_an_upload_that_is_refused_leaves_the_error_as_it_was() -> None:
    def change(key: int, size: int) -> Floats:
        return np.full(size, np.nan, np.float32) if key == 2 else drawn(key, size)

    config = training(**{"learning.compress": "top-k", "learning.most_refusals": 5})
    learner = Learner(config, [80] * 30, executor=Changing(change))
    learner.downloaded(7, 1)
    assert learner.uploaded(7, 1, 0.0) == 1.0
    before = learner.state(1).left_out[7].copy()
    learner.downloaded(7, 2)
    assert learner.uploaded(7, 2, 0.0) is None
    assert np.array_equal(learner.state(2).left_out[7], before) and len(learner.refusals) == 1


def test_a_change_too_large_for_float16_is_refused() -> None:
    config = training(**{"learning.compress": "float16", "learning.most_refusals": 5})
    learner = Learner(config, [80] * 30, executor=Changing(lambda _, size: np.full(size, 1e5, np.float32)))
    learner.downloaded(7, 1)
    assert learner.uploaded(7, 1, 0.0) is None
    assert learner.refusals[0].reason == "values that are not finite"


@pytest.mark.parametrize("compress", ["float16", "int8", "top-k"])
def test_the_schedule_is_that_of_the_bits_that_are_charged(compress: str) -> None:
    plain, sent = simulate(training()), simulate(training(**{"learning.compress": compress}))
    assert sent.rounds.drop_columns(["train_loss"]).equals(plain.rounds.drop_columns(["train_loss"]))
    assert any(not np.array_equal(sent.weights[name], tensor) for name, tensor in plain.weights.items())
    cheap = simulate(training(**{"learning.compress": compress, "radio.update_bits": "model"}))
    dear = simulate(training(**{"radio.update_bits": "model"}))
    costs = [found.summary.mean_cost or np.nan for found in (cheap, dear, plain)]
    assert costs[0] < costs[1] < costs[2]


@pytest.mark.parametrize("compress", ["int8", "top-k"])
def test_models_on_a_gpu_are_compressed_by_the_same_functions(compress: str) -> None:
    """With the GPU's trainer on the CPU, whose models lie in another order."""
    config = training(**{"learning.compress": compress, "run.rounds": 12})
    assert config.learning is not None
    data = load_dataset("digits", config.learning)
    workload = make_workload(config, data.shape, data.outputs)
    hub = Hub(make_trainer(workload, "float32", "cpu"))
    there, here = simulate(config, executor=hub.executor()), simulate(config)
    for name, tensor in here.weights.items():
        np.testing.assert_allclose(there.weights[name], tensor, atol=2e-3)
