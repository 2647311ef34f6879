"""The same rule object mixes tensors on a GPU as it mixes arrays on the CPU."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from fedtwin.learning.aggregation import Aggregator
from fedtwin.sim import simulate

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
TRAINING = {
    "run.rounds": 60,
    "fleet.devices": 6,
    "fleet.channels": 3,
    "learning.dataset": "digits",
    "learning.model": "linear",
    "learning.record_gradient": True,
}


class Velocity(NamedTuple):
    value: Any = None


def begin(model: Any, settings: Any) -> Velocity:  # noqa: ARG001
    return Velocity(0.0 * model)


def with_momentum(state: Velocity, model: Any, upload: Any, settings: Any) -> tuple[Velocity, Any]:
    velocity = 0.5 * state.value + settings.mixing * (upload.weights - model)
    return Velocity(velocity), model + 0.5 * velocity


RULES: dict[str, tuple[dict[str, Any], Any]] = {
    "fedasync": ({}, "fedasync"),
    "fedbuff": ({"learning.buffer_size": 4}, "fedbuff"),
    "window": ({}, "window"),
    "change": ({"learning.mixing": 0.3}, "change"),
    "ca2fl": ({"learning.buffer_size": 4}, "ca2fl"),
    "ca2fl in eight bits": ({"learning.buffer_size": 4, "learning.aggregation_settings.int8_beyond": 2}, "ca2fl"),
    "fedavgm": ({"policy.name": "Sy-fairness", "learning.aggregation_settings.momentum": 0.5}, "fedavgm"),
    "fedavg": ({"policy.name": "Sy-fairness"}, "fedavg"),
    "fedavg with a timeout": ({"policy.name": "Sy-fairness", "run.sync_timeout_s": 0.5}, "fedavg"),
    "one's own": ({}, Aggregator(begin, with_momentum)),
}


@needs_gpu
@pytest.mark.parametrize("name", RULES)
def test_a_rule_gives_the_model_of_the_cpu(name: str) -> None:
    changes, rule = RULES[name]
    here, there = (
        simulate({**TRAINING, **changes, "learning.executor": executor}, aggregation=rule) for executor in ("serial", "cuda")
    )
    for key, values in here.weights.items():
        np.testing.assert_allclose(there.weights[key], values, rtol=2e-2, atol=2e-3)
    last, other = here.evaluations[-1], there.evaluations[-1]
    assert other.gradient_norm2 == pytest.approx(last.gradient_norm2, rel=5e-2)
    assert other.global_loss == pytest.approx(last.global_loss, rel=1e-2)
    assert here.evaluations[0].global_loss != pytest.approx(last.global_loss, rel=1e-2), "it has learned something"
