"""A model as two flat vectors: all floating-point entries, and all integer counters. NumPy only.

Mixing two models is then one vector operation, whatever the network, and a checkpoint is a handful of arrays.
"""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.files import whole_file

Floats = NDArray[np.float32]
Counters = NDArray[np.int64]


class Entry(NamedTuple):
    """One tensor of the model, where it lies, and whether it is a counter (integer) or mixed (floating point)."""

    name: str
    shape: tuple[int, ...]
    counter: bool
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Weights(NamedTuple):
    """The state of a model."""

    floats: Floats
    counters: Counters


@dataclass(frozen=True)
class Layout:
    """The names and shapes behind the flat vectors, in the order of the model's state."""

    entries: tuple[Entry, ...]

    @property
    def float_size(self) -> int:
        return sum(entry.size for entry in self.entries if not entry.counter)

    @property
    def counter_size(self) -> int:
        return sum(entry.size for entry in self.entries if entry.counter)

    @property
    def bits(self) -> int:
        """Of one upload: float32 and 64-bit counters, without the names."""
        return 32 * self.float_size + 64 * self.counter_size

    def unpack(self, weights: Weights) -> dict[str, NDArray[Any]]:
        """Named tensors; floating-point ones are views."""
        return {
            entry.name: (weights.counters if entry.counter else weights.floats)[
                entry.offset : entry.offset + entry.size
            ].reshape(entry.shape)
            for entry in self.entries
        }

    def pack(self, tensors: Mapping[str, NDArray[Any]]) -> Weights:
        """Flat vectors from named tensors, or one sentence about the first that does not fit."""
        if reason := self.misfit(tensors):
            raise FedtwinError(f"The model's state does not fit: {reason}.")
        weights = Weights(np.empty(self.float_size, np.float32), np.empty(self.counter_size, np.int64))
        for name, view in self.unpack(weights).items():
            view[...] = tensors[name]
        return weights

    def misfit(self, tensors: Mapping[str, NDArray[Any]]) -> str | None:
        """Why named tensors are not a state of this model: names, shapes, kinds."""
        missing = [entry.name for entry in self.entries if entry.name not in tensors]
        if missing or len(tensors) != len(self.entries):
            unknown = sorted(set(tensors) - {entry.name for entry in self.entries})
            return f"tensors are missing {missing[:3]} or unknown {unknown[:3]}"
        for entry in self.entries:
            tensor = tensors[entry.name]
            if tuple(tensor.shape) != entry.shape:
                return f"{entry.name} has shape {tuple(tensor.shape)}, not {entry.shape}"
            if np.issubdtype(tensor.dtype, np.floating) == entry.counter:
                return f"{entry.name} has type {tensor.dtype}, not {'an integer' if entry.counter else 'a floating-point'} one"
        return None


def layout_of(tensors: Mapping[str, tuple[tuple[int, ...], bool]]) -> Layout:
    """A layout from names to (shape, is a counter)."""
    entries, offsets = [], {False: 0, True: 0}
    for name, (shape, counter) in tensors.items():
        entries.append(Entry(name, tuple(shape), counter, offsets[counter]))
        offsets[counter] += math.prod(shape)
    return Layout(tuple(entries))


def save_weights(path: Path, layout: Layout, weights: Weights, metadata: dict[str, str] | None = None) -> None:
    """A safetensors file with named tensors, whole or not at all."""
    save_arrays(path, {name: np.array(tensor) for name, tensor in layout.unpack(weights).items()}, metadata)


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: dict[str, str] | None = None) -> None:
    """A safetensors file, whole or not at all. A disk that is full is an ``OSError``, as for any other file."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with whole_file(path) as draft:
        try:
            save_file(dict(arrays), draft, metadata)
        except SafetensorError as error:
            code = re.search(r"os error (\d+)", str(error))
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) if code else error from None
