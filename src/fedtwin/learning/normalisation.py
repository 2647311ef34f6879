"""Mean and deviation by which samples, and the targets of a regression, are normalised. NumPy only.

A live fleet gathers them: every device tells count, mean and the sum of squared differences from it, and no sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = tuple[float, ...]
AT_ONCE = 4096


@dataclass(frozen=True)
class Normalisation:
    """One number per channel, or per feature of a row; of targets only in a regression."""

    mean: Numbers
    std: Numbers
    target_mean: Numbers = ()
    target_std: Numbers = ()

    def as_json(self) -> dict[str, list[float]]:
        return {name: list(values) for name, values in vars(self).items() if values}

    @classmethod
    def from_json(cls, given: dict[str, list[float]]) -> "Normalisation":
        return cls(**{name: tuple(map(float, values)) for name, values in given.items()})


@dataclass(frozen=True)
class Moments:
    """Of the numbers of every channel: how many, their mean, and Σ (x − mean)². They add up to those of a whole fleet."""

    count: float
    mean: Numbers
    squares: Numbers

    def __add__(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        if len(self.mean) != len(other.mean) or count == 0.0:
            raise ValueError("moments of other channels")
        one, two = np.array(self.mean), np.array(other.mean)
        mean = (self.count * one + other.count * two) / count
        squares = np.array(self.squares) + np.array(other.squares) + (two - one) ** 2 * (self.count * other.count / count)
        return Moments(count, tuple(mean.tolist()), tuple(squares.tolist()))

    @property
    def std(self) -> Numbers:
        """1 where a channel is one number throughout: there is nothing to scale."""
        deviations = np.sqrt(np.maximum(np.array(self.squares), 0.0) / self.count)
        alike = deviations <= 1e-6 * np.maximum(np.abs(np.array(self.mean)), 1e-6)
        return tuple(np.where(alike, 1.0, deviations).tolist())


def moments_of(values: NDArray[Any]) -> Moments:
    """Of (count, channels, …), every channel by itself."""
    channels, found = values.shape[1], None
    for first in range(0, len(values), AT_ONCE):
        part = np.moveaxis(values[first : first + AT_ONCE], 1, 0).reshape(channels, -1).astype(np.float64)
        mean = part.mean(1)
        squares = ((part - mean[:, None]) ** 2).sum(1)
        one = Moments(float(part.shape[1]), tuple(mean.tolist()), tuple(squares.tolist()))
        found = one if found is None else found + one
    if found is None:
        raise ValueError("moments of nothing")
    return found


def normalisation_of(samples: Sequence[Moments], targets: Sequence[Moments] = ()) -> Normalisation:
    """That of all samples together, wherever they lie."""
    whole, of_targets = _sum(samples), _sum(targets) if targets else None
    return Normalisation(
        whole.mean,
        whole.std,
        of_targets.mean if of_targets is not None else (),
        of_targets.std if of_targets is not None else (),
    )


def _sum(moments: Sequence[Moments]) -> Moments:
    total = moments[0]
    for one in moments[1:]:
        total = total + one
    return total
