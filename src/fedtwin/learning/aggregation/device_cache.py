"""What a rule needs that keeps a vector of every device: eight bits a value, and a sum of them that forgets no rounding."""

from typing import Any, NamedTuple

import numpy as np

from fedtwin.learning.aggregation.held import is_tensor

LARGEST = 127


class EightBits(NamedTuple):
    """``scale`` times whole numbers from −127 to 127."""

    scale: float
    values: Any


def in_eight_bits(vector: Any) -> EightBits:
    """Every value to the nearest of 255 steps, the largest of which is the vector's largest: half a step off at most."""
    scale = float(abs(vector).max()) / LARGEST
    values = (vector / (scale or 1.0)).round()
    return EightBits(scale, values.char() if is_tensor(values) else values.astype(np.int8))


def vector_of(kept: Any) -> Any:
    """What was kept, in eight bits or as it was, as float32."""
    if not isinstance(kept, EightBits):
        return kept
    values = kept.values.float() if is_tensor(kept.values) else kept.values.astype(np.float32)
    return kept.scale * values


class Total(NamedTuple):
    """A sum, and what rounding has cost it so far: their sum is the sum."""

    rounded: Any
    lost: Any

    def plus(self, vector: Any) -> "Total":
        """Knuth's TwoSum (The Art of Computer Programming, 4.2.2, Theorem B): what one addition loses is a number itself.

        So a vector that is added, and taken away a million uploads later, leaves nothing behind.
        """
        rounded = self.rounded + vector
        part = rounded - self.rounded
        return Total(rounded, self.lost + ((self.rounded - (rounded - part)) + (vector - part)))
