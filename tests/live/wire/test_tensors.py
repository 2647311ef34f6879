"""Models as safetensors bytes: there and back, in our order and in the library's; anything else is refused in a few words."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load, save

from fedtwin.errors import FedtwinError
from fedtwin.learning.layout import Weights, layout_of
from fedtwin.live.wire.tensors import MOST_HEADER_BYTES, Codec, UnfitError, read_model

Shapes = dict[str, tuple[tuple[int, ...], bool]]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: name != "__metadata__"
)
MODELS = st.dictionaries(NAMES, st.tuples(SHAPES, st.booleans()), min_size=1, max_size=6)


def weights_of(shapes: Shapes, seed: int) -> Weights:
    made = layout_of(shapes)
    random = np.random.default_rng(seed)
    floats = random.normal(size=made.float_size).astype(np.float32)
    return Weights(floats, random.integers(-(2**62), 2**62, size=made.counter_size, dtype=np.int64))


def same(one: Weights, other: Weights) -> bool:
    return bool(np.array_equal(one.floats, other.floats) and np.array_equal(one.counters, other.counters))


SMALL: Shapes = {"w": ((3, 2), False), "steps": ((), True), "b": ((5,), False)}
CODEC, WEIGHTS = Codec(layout_of(SMALL)), weights_of(SMALL, 0)
BYTES = CODEC.encode(WEIGHTS)


@given(shapes=MODELS, seed=st.integers(0, 2**32))
def test_there_and_back(shapes: Shapes, seed: int) -> None:
    codec, weights = Codec(layout_of(shapes)), weights_of(shapes, seed)
    data = codec.encode(weights)
    assert len(data) == codec.size
    assert same(codec.decode(data), weights) and same(codec.decode(memoryview(data)), weights)


@given(shapes=MODELS, seed=st.integers(0, 2**32))
def test_the_library_reads_what_we_write_and_we_read_what_it_writes(shapes: Shapes, seed: int) -> None:
    codec, weights = Codec(layout_of(shapes)), weights_of(shapes, seed)
    tensors = load(codec.encode(weights))
    for name, expected in codec.layout.unpack(weights).items():
        np.testing.assert_array_equal(tensors[name], expected)
    theirs = save({name: np.array(value) for name, value in tensors.items()})
    assert same(codec.decode(theirs), weights)
    found, back = read_model(theirs, "x")
    assert same(codec.layout.pack(found.unpack(back)), weights), "a model file may have any order"


def test_a_decoded_model_is_a_view_and_a_decoded_own_is_not() -> None:
    assert not CODEC.decode(BYTES).floats.flags.writeable
    own = CODEC.decode_own(BYTES)
    own.floats[0] = 7.0
    assert same(CODEC.decode(BYTES), WEIGHTS)


@given(length=st.integers(0, len(BYTES) - 1))
def test_truncated_bytes_are_refused(length: int) -> None:
    with pytest.raises(UnfitError, match="not safetensors"):
        CODEC.decode(BYTES[:length])


@given(data=st.binary(max_size=300))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(UnfitError):
        CODEC.decode(data)
    with pytest.raises(FedtwinError, match="The model 'x' cannot be read"):
        read_model(data, "x")


@given(place=st.integers(0, len(BYTES) - 8 * 1 - 4 * 11 - 1), value=st.integers(0, 255))
def test_a_header_with_a_wrong_byte_gives_the_same_model_or_is_refused(place: int, value: int) -> None:
    data = bytearray(BYTES)
    data[place] = value
    try:
        found = CODEC.decode(bytes(data))
    except UnfitError:
        return
    assert found.floats.shape == WEIGHTS.floats.shape and found.counters.shape == WEIGHTS.counters.shape


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"w": None}, "shape: tensors are missing"),
        ({"extra": np.zeros(2, np.float32)}, "shape: tensors are missing .* or unknown"),
        ({"w": np.zeros((2, 3), np.float32)}, "shape: "),
        ({"w": np.zeros((3, 2), np.float64)}, "type: w is float64, not float32"),
        ({"w": np.zeros((3, 2), np.float16)}, "type: w is float16, not float32"),
        ({"steps": np.zeros((), np.int32)}, "type: steps is int32, not int64"),
        ({"steps": np.zeros((), np.float32)}, "shape: |type: "),
    ],
)
def test_another_model_is_refused(change: dict[str, np.ndarray | None], words: str) -> None:
    tensors = {**load(BYTES), **change}
    with pytest.raises(UnfitError, match=words):
        CODEC.decode(save({name: value for name, value in tensors.items() if value is not None}))


@pytest.mark.parametrize("kind", ["float64", "float16", "uint64", "complex64"])
def test_a_model_file_of_another_type_is_refused_by_name(kind: str) -> None:
    with pytest.raises(FedtwinError, match=r"The model 'x\.safetensors' cannot be read: .*w"):
        read_model(save({"w": np.ones((3, 2), kind), "steps": np.ones((), np.int64)}), "x.safetensors")


def test_a_model_file_may_have_flags_and_masks() -> None:
    tensors = {"w": np.ones(2, np.float32), "seen": np.array(True), "mask": np.array([0, 1, 2], np.uint8)}
    found, weights = read_model(save(tensors), "x")
    assert {name: value.tolist() for name, value in found.unpack(weights).items()} == {
        "w": [1.0, 1.0], "seen": 1, "mask": [0, 1, 2]
    }  # fmt: skip


def test_a_huge_message_is_not_even_read() -> None:
    with pytest.raises(UnfitError, match="size: "):
        CODEC.decode(bytes(CODEC.size + MOST_HEADER_BYTES + 1))


def test_a_model_file_keeps_the_order_of_its_header() -> None:
    header = json.dumps(
        {name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * k, 4 * k + 4]} for k, name in enumerate(["z", "a", "m"])}
    ).encode()
    found, weights = read_model(struct.pack("<Q", len(header)) + header + np.arange(3, dtype=np.float32).tobytes(), "x")
    assert [entry.name for entry in found.entries] == ["z", "a", "m"]
    assert weights.floats.tolist() == [0.0, 1.0, 2.0]
