"""FedAvgM: the means of synchronous rounds, with momentum."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.errors import FedtwinError
from fedtwin.testing import check_aggregator
from tests.learning.aggregation.made_up import SIZE, models, rule, uploads

FEDAVGM: dict[str, Any] = {"learning.aggregation": "fedavgm", "run.mode": "sync"}


def of(**own: Any) -> dict[str, Any]:
    return FEDAVGM | {f"learning.aggregation_settings.{key}": value for key, value in own.items()}


@given(momentum=st.floats(0.0, 0.99), rate=st.floats(0.01, 2.0), seed=st.integers(0, 2**32))
def test_it_is_momentum_of_the_rounds_means(momentum: float, rate: float, seed: int) -> None:
    given = uploads(12, seed)
    w, v = np.ones(SIZE), np.zeros(SIZE)
    found = list(models(rule(of(momentum=momentum, rate=rate)), given, round_of=4))
    for first in (0, 4, 8):
        some = given[first : first + 4]
        gradient = w - sum(one.samples * one.weights.astype(float) for one in some) / sum(one.samples for one in some)
        v = momentum * v + gradient
        w = w - rate * v
        assert found[first + 3] == pytest.approx(w, rel=1e-4, abs=1e-4)
        assert first == 0 or (found[first + 2] == found[first - 1]).all(), "nothing happens before the round is closed"


def test_without_momentum_it_is_fedavg() -> None:
    fedavg = rule({"run.mode": "sync"})
    for one, its in zip(
        models(rule(of(momentum=0.0)), uploads(12), round_of=4), models(fedavg, uploads(12), round_of=4), strict=True
    ):
        assert one == pytest.approx(its, rel=1e-5, abs=1e-5)


def test_a_round_that_nothing_came_of_is_none() -> None:
    asked = rule(FEDAVGM)
    state, model = asked.init(np.ones(SIZE, np.float32)), np.ones(SIZE, np.float32)
    state, model = asked.apply(state, model, uploads(1)[0])
    state, model = asked.close_round(state, model)
    again = asked.close_round(state, model)
    assert again[0] is state and again[1] is model


@pytest.mark.parametrize("own", [{"momentum": 0.0}, {"momentum": 0.5, "rate": 0.3}])
def test_it_keeps_its_word(own: dict[str, Any]) -> None:
    check_aggregator("fedavgm", own)


@pytest.mark.parametrize("own", [{"momentum": 1.0}, {"momentum": -0.1}, {"rate": 0.0}, {"rate": "fast"}])
def test_other_settings_are_told(own: dict[str, Any]) -> None:
    with pytest.raises(
        FedtwinError, match=rf"learning\.aggregation_settings\.{next(iter(own))} = .* is not allowed: it must be"
    ):
        rule(of(**own))


def test_it_is_for_synchronous_rounds() -> None:
    with pytest.raises(FedtwinError, match=r"'fedavgm' needs run\.mode = 'sync'"):
        rule({"learning.aggregation": "fedavgm"})
