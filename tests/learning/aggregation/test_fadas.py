"""FADAS: AMSGrad by the means of K changes, with smaller steps where the uploads are stale."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation.fadas import Steps, rate_of
from fedtwin.testing import check_aggregator
from tests.learning.aggregation.made_up import SIZE, models, rule, uploads


def of(buffer_size: int = 3, **own: Any) -> dict[str, Any]:
    settings = {f"learning.aggregation_settings.{key}": value for key, value in own.items()}
    return {"learning.aggregation": "fadas", "learning.buffer_size": buffer_size, **settings}


@pytest.mark.parametrize("delay", ["ratio", "bound", "none"])
@given(buffer_size=st.integers(1, 4), seed=st.integers(0, 2**32), threshold=st.integers(0, 4))
def test_it_is_its_equation(delay: str, buffer_size: int, seed: int, threshold: int) -> None:
    """One value after the other, in double precision."""
    given, rate = uploads(20, seed), 0.3
    asked = rule(of(buffer_size, delay=delay, delay_threshold=threshold, rate=rate, beta1=0.8, beta2=0.9, epsilon=1e-3))
    found = list(models(asked, given))
    w, m, v, v_hat = [1.0] * SIZE, [0.0] * SIZE, [0.0] * SIZE, [0.0] * SIZE
    for end in range(buffer_size, 21, buffer_size):
        some = given[end - buffer_size : end]
        tau = max(one.staleness for one in some)
        step = rate
        if delay != "none" and tau > threshold:
            step = rate / tau if delay == "ratio" else min(rate, 1 / tau)
        for k in range(SIZE):
            change = sum(float(one.weights[k]) - float(one.start[k]) for one in some) / buffer_size
            m[k] = 0.8 * m[k] + 0.2 * change
            v[k] = 0.9 * v[k] + 0.1 * change**2
            v_hat[k] = max(v_hat[k], v[k])
            w[k] += step * m[k] / (v_hat[k] ** 0.5 + 1e-3)
        assert found[end - 1] == pytest.approx(w, rel=1e-4, abs=1e-4)


def test_without_a_delay_it_is_pytorchs_amsgrad() -> None:
    """But for the correction of the bias, which the paper has not: with β1² = β2 and one step there is none in m/√v̂ either."""
    given = uploads(1)
    parameter = torch.ones(SIZE, requires_grad=True)
    optimiser = torch.optim.Adam([parameter], lr=0.05, betas=(0.5, 0.75), eps=1e-12, amsgrad=True)
    parameter.grad = torch.from_numpy(given[0].start - given[0].weights)
    optimiser.step()
    [found] = models(rule(of(1, delay="none", rate=0.05, beta1=0.5, beta2=0.75, epsilon=1e-12)), given)
    assert found == pytest.approx(parameter.detach().numpy(), rel=1e-5)


def test_the_denominator_never_falls() -> None:
    """Which is v̂, not v: after one large change the steps stay small."""
    zero = np.zeros(SIZE, np.float32)
    sizes = [100.0, *[0.01] * 40]
    given = [one._replace(start=zero, weights=zero + size) for one, size in zip(uploads(41), sizes, strict=True)]
    found = list(models(rule(of(1, delay="none", rate=0.1, beta1=0.5, beta2=0.5)), given))
    assert np.abs(found[-1] - found[-2]).max() < 1e-4, "with v in its place it would be the rate, 0.1"


@given(delay=st.integers(0, 5000), how=st.sampled_from(["ratio", "bound", "none"]), rate=st.floats(1e-6, 10.0))
def test_a_delay_never_makes_a_step_larger(delay: int, how: str, rate: float) -> None:
    steps = Steps(rate=rate, delay=how, delay_threshold=3)
    assert 0.0 < rate_of(delay + 1, steps) <= rate_of(delay, steps) <= rate
    assert rate_of(3, steps) == rate


@pytest.mark.parametrize("own", [{"delay": "bound"}, {"delay": "none"}, {"delay_threshold": 5, "rate": 0.1}])
def test_it_keeps_its_word(own: dict[str, Any]) -> None:
    check_aggregator("fadas", own)


@pytest.mark.parametrize(
    "own", [{"rate": 0.0}, {"beta1": 1.0}, {"beta2": -0.1}, {"epsilon": 0.0}, {"delay_threshold": -1}, {"delay_threshold": 1.5}]
)
def test_other_settings_are_told(own: dict[str, Any]) -> None:
    with pytest.raises(
        FedtwinError, match=rf"learning\.aggregation_settings\.{next(iter(own))} = .* is not allowed: it must be"
    ):
        rule(of(**own))


def test_another_word_for_the_delay_is_told_with_those_there_are() -> None:
    words = r"learning\.aggregation_settings\.delay = 'half' is not allowed: it must be one of ratio, bound, none\."
    with pytest.raises(FedtwinError, match=words):
        rule(of(delay="half"))
