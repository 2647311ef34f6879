"""Made-up uploads, and a rule asked with them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedtwin.config import load_config
from fedtwin.learning.aggregation import Upload, aggregation_of
from fedtwin.learning.aggregation.at_work import Rule

SIZE = 6


def rule(settings: dict[str, Any]) -> Rule:
    """The rule itself, without the average."""
    found = aggregation_of(load_config(overrides={**settings, "learning.average": "none"}))
    assert isinstance(found, Rule)
    return found


def uploads(count: int, seed: int = 0, *, devices: int = 5, size: int = SIZE) -> list[Upload]:
    """Of devices in any order, stale by up to seven versions."""
    chance = np.random.default_rng(seed)
    drawn = chance.normal(size=(count, 2, size)).astype(np.float32)
    who, stale = chance.integers(0, devices, count), chance.integers(0, 8, count)
    samples = chance.integers(1, 100, count)
    return [
        Upload(start, weights, int(stale[k]), float(samples[k]), int(who[k]), k) for k, (start, weights) in enumerate(drawn)
    ]


def models(asked: Rule, given: list[Upload], *, round_of: int | None = None) -> Iterator[Any]:
    """The model after every upload; ``round_of`` of them are a synchronous round."""
    model: Any = np.ones(SIZE, np.float32)
    state = asked.init(model)
    for number, upload in enumerate(given, 1):
        state, model = asked.apply(state, model, upload)
        if round_of is not None and number % round_of == 0:
            state, model = asked.close_round(state, model)
        assert model.dtype == np.float32
        yield model
