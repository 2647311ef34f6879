"""NumPy's blend is the two products and their sum, to the last bit; PyTorch's is the same up to rounding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedtwin.learning.aggregation.blend import blend

VECTORS = arrays(np.float32, 9, elements=st.floats(-1e3, 1e3, width=32))


@given(VECTORS, VECTORS, st.floats(0.0, 1.0))
def test_it_is_the_sum_of_both_parts(model: np.ndarray, other: np.ndarray, taken: float) -> None:
    kept = 1.0 - taken
    found = blend(kept, model, taken, other)
    np.testing.assert_array_equal(found, kept * model + taken * other)
    tensor = blend(kept, torch.from_numpy(model), taken, torch.from_numpy(other))
    np.testing.assert_allclose(tensor.numpy(), kept * model.astype(np.float64) + taken * other, rtol=0.0, atol=4e-4)
    assert found.dtype == np.float32 and tensor.dtype == torch.float32


@pytest.mark.parametrize(("taken", "expected"), [(0.0, 1.0), (1.0, 5.0)])
def test_its_ends_are_its_parts(taken: float, expected: float) -> None:
    assert blend(1.0 - taken, torch.tensor([1.0]), taken, torch.tensor([5.0])).tolist() == [expected]
