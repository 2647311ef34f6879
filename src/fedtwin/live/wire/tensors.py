"""Models as safetensors bytes. The flat vectors of a model are the data section, so writing and reading copy nothing twice.

Bytes in another order, as other programs write them, are read by the safetensors library.
"""

import json
import struct
from typing import Any

import numpy as np

from fedtwin.errors import FedtwinError
from fedtwin.learning.layout import Layout, Weights, layout_of

FLOAT, COUNTER = "F32", "I64"
KINDS = (np.float32, np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_)
MOST_HEADER_BYTES = 4 * 2**20


class UnfitError(Exception):
    """Why bytes are not a state of the model, in a few words."""


class Codec:
    """Between the bytes and the flat vectors of one layout: counters first, so that both lie aligned."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._counter_bytes = 8 * layout.counter_size
        self._data_bytes = self._counter_bytes + 4 * layout.float_size
        self._header = _header(layout, self._counter_bytes)
        self.size = len(self._header) + self._data_bytes

    def encode(self, weights: Weights) -> bytes:
        return b"".join([self._header, np.ascontiguousarray(weights.counters).data, np.ascontiguousarray(weights.floats).data])

    def decode(self, data: bytes | memoryview) -> Weights:
        """The vectors in ``data``, without a copy where it has our own order; or ``UnfitError``."""
        if len(data) > self.size + MOST_HEADER_BYTES:
            raise UnfitError(f"size: {len(data)} bytes, and the model has {self.size}")
        start = len(self._header)
        if len(data) == self.size and bytes(data[:start]) == self._header:
            counters = np.frombuffer(data, np.int64, self.layout.counter_size, start)
            floats = np.frombuffer(data, np.float32, self.layout.float_size, start + self._counter_bytes)
            return Weights(floats, counters)
        return self._decode_by_name(bytes(data))

    def decode_own(self, data: bytes | memoryview) -> Weights:
        """The same in memory of its own, which may be written to."""
        floats, counters = self.decode(data)
        return Weights(np.array(floats), np.array(counters))

    def _decode_by_name(self, data: bytes) -> Weights:
        tensors = load_tensors(data)
        if reason := self.layout.misfit(tensors):
            raise UnfitError(f"shape: {reason}")
        for entry in self.layout.entries:
            kind = tensors[entry.name].dtype
            if kind != (np.int64 if entry.counter else np.float32):
                raise UnfitError(f"type: {entry.name} is {kind}, not {'int64' if entry.counter else 'float32'}")
        return self.layout.pack(tensors)


def _header(layout: Layout, counter_bytes: int) -> bytes:
    entries: dict[str, Any] = {}
    for entry in layout.entries:
        width, first = (8, 0) if entry.counter else (4, counter_bytes)
        begin = first + width * entry.offset
        entries[entry.name] = {
            "dtype": COUNTER if entry.counter else FLOAT,
            "shape": list(entry.shape),
            "data_offsets": [begin, begin + width * entry.size],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def load_tensors(data: bytes) -> dict[str, np.ndarray]:
    """Named tensors of any safetensors bytes, or ``UnfitError``."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise UnfitError(f"not safetensors: {error}"[:200]) from None


def read_model(data: bytes, name: str) -> tuple[Layout, Weights]:
    """Layout and vectors of a model file, in the order of its header; ``name`` is for the sentence where it fails."""
    try:
        tensors = load_tensors(data)
        order = list(json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]]))
    except (UnfitError, struct.error) as error:
        raise FedtwinError(f"The model {name!r} cannot be read: {error}.") from None
    for key, tensor in tensors.items():
        if tensor.dtype not in KINDS:
            allowed = ", ".join(np.dtype(kind).name for kind in KINDS)
            raise FedtwinError(f"The model {name!r} cannot be read: {key} is {tensor.dtype}, not one of {allowed}.")
    named = [key for key in order if key in tensors]
    layout = layout_of({key: (tensors[key].shape, not np.issubdtype(tensors[key].dtype, np.floating)) for key in named})
    return layout, layout.pack(tensors)


def metadata_of(data: bytes) -> dict[str, str]:
    """What stands in the header beside the tensors, or ``UnfitError``."""
    try:
        found = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    except (struct.error, ValueError) as error:
        raise UnfitError(f"not safetensors: {error}"[:200]) from None
    return dict(found.get("__metadata__", {}))
