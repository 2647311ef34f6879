"""Every entry of the change as a whole number of steps, q = round(x / s) from −127 to 127, with the step s = max |x| / 127 of
its tensor beside them: an error of at most s / 2.

One step per tensor, since the changes of two layers can differ by orders of magnitude.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.learning.compression.base import Part, Parts, Scheme, Sizes
from fedtwin.learning.layout import Floats

MOST = 127


def parts(sizes: Sizes, share: float) -> dict[str, Part]:  # noqa: ARG001
    return {"change": Part(np.int8, sum(sizes)), "steps": Part(np.float32, len(sizes))}


def encode(change: Floats, sizes: Sizes, share: float) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    steps = _largest(change, sizes) / np.float32(MOST)
    step: Floats = np.repeat(steps, sizes)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(step > 0.0, np.rint(change / step), 0.0)
    return {"change": np.clip(q, -MOST, MOST).astype(np.int8), "steps": steps}


def _largest(change: Floats, sizes: Sizes) -> Floats:
    """max |x| of every tensor."""
    begins = np.cumsum((0, *sizes))[:-1]
    return np.maximum.reduceat(np.abs(change), begins) if sizes else np.empty(0, np.float32)


def decode(parts: Parts, sizes: Sizes) -> Floats:
    change: Floats = parts["change"] * np.repeat(parts["steps"], sizes)
    return change


def fault(parts: Parts, sizes: Sizes) -> str | None:  # noqa: ARG001
    if (parts["steps"] < 0.0).any():
        return "range: a step is negative"
    return "range: a number of steps is -128" if (parts["change"] < -MOST).any() else None


SCHEME = Scheme(parts, encode, decode, fault)
