from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedtwin.errors import FedtwinError
from fedtwin.learning.layout import layout_of, save_weights

LAYOUT = layout_of({"conv": ((2, 1, 3, 3), False), "mean": ((2,), False), "steps": ((), True)})
TENSORS: dict[str, Any] = {
    "conv": np.arange(18, dtype=np.float32).reshape(2, 1, 3, 3),
    "mean": np.array([0.5, -1.0], np.float32),
    "steps": np.array(7, np.int64),
}


def test_pack_and_unpack() -> None:
    weights = LAYOUT.pack(TENSORS)
    assert (LAYOUT.float_size, LAYOUT.counter_size) == (20, 1) == (weights.floats.size, weights.counters.size)
    for name, tensor in LAYOUT.unpack(weights).items():
        assert np.array_equal(tensor, TENSORS[name]) and tensor.shape == TENSORS[name].shape


def test_files_hold_named_tensors(tmp_path: Path) -> None:
    save_weights(tmp_path / "model.safetensors", LAYOUT, LAYOUT.pack(TENSORS))
    loaded = load_file(tmp_path / "model.safetensors")
    assert all(np.array_equal(loaded[name], TENSORS[name]) for name in TENSORS)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"conv": np.zeros((2, 1, 3, 2), np.float32)}, "conv has shape"),
        ({"steps": np.array(7.0, np.float32)}, "steps has type float32, not an integer"),
        ({"mean": np.array([1, 2], np.int64)}, "mean has type int64, not a floating-point"),
        ({"extra": np.zeros(1)}, "unknown"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        LAYOUT.pack({**TENSORS, **change})
