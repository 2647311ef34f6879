"""Compressed uploads as bytes: they come as they were sent, from other programs too, and nothing else comes in."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fedtwin.config import LearningConfig
from fedtwin.learning.layout import Weights, layout_of
from fedtwin.live.wire.tensors import UnfitError
from fedtwin.live.wire.updates import UpdateCodec, update_codec_of

LAYOUT = layout_of(
    {"a": ((5, 7), False), "norm.running_var": ((3,), False), "b": ((6,), False), "norm.num_batches_tracked": ((), True)}
)
START = Weights(np.linspace(-1.0, 1.0, 44, dtype=np.float32), np.array([2], np.int64))
TRAINED = Weights(START.floats + np.sin(np.arange(44, dtype=np.float32)), np.array([9], np.int64))
NAMES = ["float16", "int8", "top-k"]


def codec_of(compress: str) -> UpdateCodec:
    codec = update_codec_of(LearningConfig.model_validate({"compress": compress}), LAYOUT)
    assert codec is not None
    return codec


def sent_by(codec: UpdateCodec) -> bytes:
    return codec.encode(codec.compressor.send(START, TRAINED).parts)


def test_whole_models_have_no_codec_of_changes() -> None:
    assert update_codec_of(LearningConfig(), LAYOUT) is None and update_codec_of(None, LAYOUT) is None


@pytest.mark.parametrize("compress", NAMES)
def test_what_was_sent_comes_whatever_the_order_of_the_bytes(compress: str) -> None:
    codec = codec_of(compress)
    body = sent_by(codec)
    expected = codec.compressor.receive(START, codec.compressor.send(START, TRAINED).parts)
    assert len(body) == codec.size < 8 * 44 * 4
    parts = load(body)
    others = save(dict(reversed(parts.items())), {"made by": "another program"})
    assert others != body
    for data in (body, memoryview(body), others):
        found = codec.decode(data, START)
        assert np.array_equal(found.floats, expected.floats) and found.counters.tolist() == [9]
        assert found.floats.flags.writeable


@pytest.mark.parametrize("compress", NAMES)
@given(st.data())
def test_damaged_bytes_are_a_reason_or_a_model(compress: str, data: st.DataObject) -> None:
    codec = codec_of(compress)
    body = bytearray(sent_by(codec))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))]) if data.draw(st.booleans()) else bytes(body)
    try:
        found = codec.decode(cut, START)
    except UnfitError as error:
        assert ": " in str(error)
    else:
        assert found.floats.shape == (44,) and found.counters.shape == (1,)


@pytest.mark.parametrize("compress", NAMES)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_reason(compress: str, body: bytes) -> None:
    with pytest.raises(UnfitError):
        codec_of(compress).decode(body, START)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"fedtwin.places": np.array([0], np.uint32)}, "shape: fedtwin.places has shape (1,), not (5,)"),
        ({"fedtwin.places": np.array([0, 1, 2, 3, 4], np.int64)}, "type: fedtwin.places is int64, not uint32"),
        ({"fedtwin.places": np.array([0, 1, 2, 3, 41], np.uint32)}, "range: a place is outside the model"),
        ({"fedtwin.places": np.array([0, 1, 1, 3, 4], np.uint32)}, "range: the places are not in order"),
        ({"fedtwin.values": np.array([0, 1, np.nan, 3, 4], np.float32)}, "not finite: values"),
        ({"fedtwin.values": np.zeros((5, 1), np.float32)}, "shape: fedtwin.values has shape (5, 1)"),
        ({"fedtwin.values": np.zeros(5, np.float64)}, "type: fedtwin.values is float64, not float32"),
        ({"fedtwin.statistics": np.array([0, np.inf, 0], np.float32)}, "not finite: statistics"),
        ({"more": np.zeros(1, np.float32)}, "shape: tensors are missing [] or unknown ['more']"),
    ],
)
def test_what_does_not_fit_is_a_reason(change: dict[str, np.ndarray], reason: str) -> None:
    codec = update_codec_of(LearningConfig(compress="top-k", top_k=0.1), LAYOUT)
    assert codec is not None
    parts = load(sent_by(codec))
    with pytest.raises(UnfitError) as told:
        codec.decode(save({**parts, **change}), START)
    assert str(told.value).startswith(reason)


def test_a_whole_model_is_no_change() -> None:
    body = save({name: np.array(tensor) for name, tensor in LAYOUT.unpack(TRAINED).items()})
    with pytest.raises(UnfitError, match=r"^shape: tensors are missing \['fedtwin.change'"):
        codec_of("float16").decode(body, START)


def test_a_header_that_promises_much_is_a_reason() -> None:
    huge = {"fedtwin.change": {"dtype": "F16", "shape": [2**40], "data_offsets": [0, 2**41]}}
    text = json.dumps(huge).encode()
    with pytest.raises(UnfitError, match=r"^not safetensors"):
        codec_of("float16").decode(struct.pack("<Q", len(text)) + text, START)
    with pytest.raises(UnfitError, match=r"^size: "):
        codec_of("float16").decode(bytes(5 * 2**20), START)
