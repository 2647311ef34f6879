"""Every entry of the change as a 16-bit number: 11 bits of it, so an error of at most 1/2048 of its size.

Of the change, not of the model: a change is often smaller than 1/2048 of the weight it belongs to, which would not move. Below
6.1e-5 the error is at most 3e-8; above 65504 an entry is infinite, and the upload is refused. What is left out is not worth
keeping.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.learning.compression.base import Part, Parts, Scheme, Sizes
from fedtwin.learning.layout import Floats


def parts(sizes: Sizes, share: float) -> dict[str, Part]:  # noqa: ARG001
    return {"change": Part(np.float16, sum(sizes))}


def encode(change: Floats, sizes: Sizes, share: float) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    return {"change": change.astype(np.float16)}


def decode(parts: Parts, sizes: Sizes) -> Floats:  # noqa: ARG001
    return parts["change"].astype(np.float32)


def fault(parts: Parts, sizes: Sizes) -> str | None:  # noqa: ARG001
    """Any finite numbers are a change."""
    return None


SCHEME = Scheme(parts, encode, decode, fault, feeds_back=False)
