"""The k entries of the change that are largest in size, as they are, with their places: the others are 0.

k is ``learning.top_k`` of the entries, rounded up, one at least. Of entries of the same size the first ones are taken.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.learning.compression.base import Part, Parts, Scheme, Sizes
from fedtwin.learning.layout import Floats


def count(sizes: Sizes, share: float) -> int:
    """k"""
    return min(max(math.ceil(round(share * sum(sizes), 6)), 1), sum(sizes))  # 0.1 · 30 is 3


def parts(sizes: Sizes, share: float) -> dict[str, Part]:
    k = count(sizes, share)
    return {"places": Part(np.uint32, k), "values": Part(np.float32, k)}


def encode(change: Floats, sizes: Sizes, share: float) -> dict[str, NDArray[Any]]:
    places = largest(change, count(sizes, share))
    return {"places": places, "values": change[places]}


def largest(change: Floats, k: int) -> NDArray[np.uint32]:
    """The places of the k largest in size, in order; what is no number counts as the largest, and is refused later."""
    size = np.abs(change)
    size[np.isnan(size)] = np.inf
    least = np.partition(size, len(size) - k)[len(size) - k] if k else np.inf
    above, equal = np.flatnonzero(size > least), np.flatnonzero(size == least)
    return np.sort(np.concatenate([above, equal[: k - len(above)]])).astype(np.uint32)


def decode(parts: Parts, sizes: Sizes) -> Floats:
    change = np.zeros(sum(sizes), np.float32)
    change[parts["places"]] = parts["values"]
    return change


def fault(parts: Parts, sizes: Sizes) -> str | None:
    places = parts["places"]
    if (places >= sum(sizes)).any():
        return "range: a place is outside the model"
    return "range: the places are not in order, each once" if (places[1:] <= places[:-1]).any() else None


SCHEME = Scheme(parts, encode, decode, fault)
