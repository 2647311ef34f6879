"""Eight bits are half a step off at most, and the sum of a cache does not drift."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedtwin.learning.aggregation.device_cache import EightBits, Total, in_eight_bits, vector_of

VECTORS = arrays(np.float32, st.integers(1, 20), elements=st.floats(-1e6, 1e6, width=32))


@given(vector=VECTORS)
def test_eight_bits_are_half_a_step_off_at_most(vector: np.ndarray) -> None:
    kept = in_eight_bits(vector)
    assert kept.values.dtype == np.int8 and vector_of(kept).dtype == np.float32
    assert np.abs(vector_of(kept) - vector).max() <= 0.501 * np.abs(vector).max() / 127 + 1e-42


@given(vector=VECTORS)
def test_pytorchs_vectors_are_kept_as_numpys_are(vector: np.ndarray) -> None:
    here, there = in_eight_bits(vector), in_eight_bits(torch.from_numpy(vector))
    assert there.scale == here.scale and there.values.dtype == torch.int8
    assert there.values.numpy() == pytest.approx(here.values, abs=1), "where it is between two steps, the next one"
    assert vector_of(there).dtype == torch.float32
    assert (vector_of(EightBits(here.scale, torch.from_numpy(here.values))).numpy() == vector_of(here)).all()


def test_nothing_is_nothing_in_eight_bits() -> None:
    assert (vector_of(in_eight_bits(np.zeros(3, np.float32))) == 0.0).all()


@pytest.mark.parametrize("vector", [np.asarray, torch.from_numpy], ids=["numpy", "pytorch"])
def test_a_sum_forgets_no_rounding(vector: object) -> None:
    """Changes of 20 devices, each taking the place of its last one 500 times, that fall by four powers of ten: a sum in float32
    keeps the rounding of the first, large ones for ever.
    """
    assert callable(vector)
    chance, size, devices = np.random.default_rng(0), 50, 20
    zero = np.zeros(size, np.float32)
    last = [zero] * devices
    total, plain = Total(vector(zero), vector(zero)), vector(zero)
    for number in range(500 * devices):
        change = (chance.normal(size=size) * 10.0 ** (-4 * number / (500 * devices))).astype(np.float32)
        old, last[number % devices] = last[number % devices], change
        total = total.plus(vector(-old)).plus(vector(change))
        plain = plain + vector(change) - vector(old)
    exactly = np.sum(np.array(last, np.float64), axis=0)
    scale = np.abs(exactly).max()
    assert np.abs(np.asarray(total.rounded + total.lost) - exactly).max() < 1e-6 * scale
    assert np.abs(np.asarray(plain) - exactly).max() > 1e-4 * scale, "there was something to forget"
