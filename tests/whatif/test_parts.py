"""Fading is Gamma distributed with mean 1 and the shape that is asked for; silence is as frequent as asked for."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from fedtwin.draws import Purpose, stream
from fedtwin.whatif.parts import DEEPEST_FADE, Depth, Silence, available, fading_gain, gain
from fedtwin.world.parts import Moment

ROUNDS = 4000


def moments(seed: int) -> list[Moment]:
    start = stream(seed, Purpose.CHANNEL, 0)
    return [Moment(start, 0, round_, 0.0) for round_ in range(ROUNDS)]


@pytest.mark.parametrize("shape", [0.3, 0.9, 1.0, 1.7, 12.0, 400.0])
def test_fading_has_the_gamma_distribution_of_its_shape(shape: float) -> None:
    found = [fading_gain(at, shape) for at in moments(7)]
    assert kstest(found, "gamma", args=(shape, 0.0, 1.0 / shape)).pvalue > 1e-3
    assert kstest(found, "gamma", args=(1.5 * shape, 0.0, 1.0 / (1.5 * shape))).pvalue < 1e-6


def test_a_steady_link_does_not_fade() -> None:
    assert all(abs(fading_gain(at, 1e6) - 1.0) < 0.01 for at in moments(3))


@given(seed=st.integers(0, 2**63 - 1), shape=st.floats(0.05, 1e6), path_gain=st.floats(1e-45, 1e45))
def test_a_gain_is_a_number_above_zero(seed: int, shape: float, path_gain: float) -> None:
    found = [gain(at, path_gain, Depth(shape)) for at in moments(seed)[:20]]
    assert all(math.isfinite(one) and one >= path_gain * DEEPEST_FADE for one in found)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.7, 1.0])
def test_devices_are_silent_as_often_as_asked(share: float) -> None:
    silent = np.mean([not available(at, Silence(share)) for at in moments(11)])
    assert abs(silent - share) <= 4.0 * math.sqrt(share * (1.0 - share) / ROUNDS)
