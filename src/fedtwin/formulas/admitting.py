"""The value of a limit that lets most of a fleet take part."""

import math
from collections.abc import Iterator, Sequence

MOST = 0.9


def enough_for_most(needed: Sequence[float]) -> float:
    """The least that is enough for nine devices of ten; for all of fewer than ten."""
    return sorted(needed)[math.ceil(MOST * len(needed)) - 1]


def rounded_up(value: float) -> Iterator[float]:
    """Three digits, upwards, and from there on in steps of the last one."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    steps = math.ceil(value / step)
    while True:
        yield float(f"{steps * step:.3g}") if steps < 1000 else steps * step
        steps += 1


def round_up(value: float) -> float:
    """Three digits, and no less."""
    return next(rounded for rounded in rounded_up(value) if rounded >= value)
