"""Compressed uploads as safetensors bytes: the vectors that travel of a change, named ``fedtwin.PART``.

Bytes in another order, as other programs write them, are read by the safetensors library.
"""

import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.config import LearningConfig
from fedtwin.learning.compression import Compressor, Parts, compressor_of
from fedtwin.learning.layout import Layout, Weights
from fedtwin.live.wire.tensors import MOST_HEADER_BYTES, UnfitError, load_tensors

PREFIX = "fedtwin."
KINDS: dict[type[np.generic], str] = {np.int64: "I64", np.float32: "F32", np.uint32: "U32", np.float16: "F16", np.int8: "I8"}


class UpdateCodec:
    """Between the bytes and the parts of what one compression sends; the widest numbers first, so that all lie aligned."""

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor
        self._parts = dict(sorted(compressor.parts.items(), key=lambda named: -np.dtype(named[1].dtype).itemsize))
        self._header, self.size = self._made_header()

    def _made_header(self) -> tuple[bytes, int]:
        """And the length of all."""
        entries: dict[str, Any] = {}
        end = 0
        for name, part in self._parts.items():
            begin, end = end, end + np.dtype(part.dtype).itemsize * part.size
            entries[PREFIX + name] = {"dtype": KINDS[part.dtype], "shape": [part.size], "data_offsets": [begin, end]}
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text, 8 + len(text) + end

    def encode(self, parts: Parts) -> bytes:
        return b"".join([self._header, *(np.ascontiguousarray(parts[name]).data for name in self._parts)])

    def decode(self, data: bytes | memoryview, start: Weights) -> Weights:
        """The model that a device means by these bytes, which had downloaded ``start``; or ``UnfitError``."""
        parts = self._read(data)
        if fault := self.compressor.fault(parts):
            raise UnfitError(fault)
        return self.compressor.receive(start, parts)

    def _read(self, data: bytes | memoryview) -> dict[str, NDArray[Any]]:
        if len(data) > self.size + MOST_HEADER_BYTES:
            raise UnfitError(f"size: {len(data)} bytes, and an upload has {self.size}")
        at, parts = len(self._header), {}
        if len(data) == self.size and bytes(data[:at]) == self._header:
            for name, part in self._parts.items():
                parts[name] = np.frombuffer(data, part.dtype, part.size, at)
                at += parts[name].nbytes
            return parts
        return self._read_by_name(bytes(data))

    def _read_by_name(self, data: bytes) -> dict[str, NDArray[Any]]:
        tensors, wanted = load_tensors(data), {PREFIX + name for name in self._parts}
        if set(tensors) != wanted:
            missing, unknown = sorted(wanted - set(tensors)), sorted(set(tensors) - wanted)
            raise UnfitError(f"shape: tensors are missing {missing[:3]} or unknown {unknown[:3]}"[:300])
        for name, part in self._parts.items():
            found = tensors[PREFIX + name]
            if found.shape != (part.size,):
                raise UnfitError(f"shape: {PREFIX}{name} has shape {found.shape}, not {(part.size,)}")
            if found.dtype != part.dtype:
                raise UnfitError(f"type: {PREFIX}{name} is {found.dtype}, not {np.dtype(part.dtype)}")
        return {name: tensors[PREFIX + name] for name in self._parts}


def update_codec_of(learning: LearningConfig | None, layout: Layout) -> UpdateCodec | None:
    """Of what a run compresses; None where uploads are whole models."""
    compressor = None if learning is None else compressor_of(learning, layout)
    return None if compressor is None else UpdateCodec(compressor)
