"""Means with 95 % intervals, and paired differences: the same seed is the same world for every scheme."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % confidence interval by Student's t; of one value there is no interval (NaN)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedDifference:
    """first − second of one metric over the seeds both have run, with the two-sided p-value of the paired t-test.

    ``left_out`` are the seeds at which one of the two has no run, or no value. Without any pair the numbers are NaN.
    """

    first: str
    second: str
    seeds: int
    mean_difference: float
    low: float
    high: float
    p_value: float | None
    metric: str = "mean_cost"
    left_out: tuple[int, ...] = ()

    @property
    def significant(self) -> bool:
        return self.p_value is not None and self.p_value < 1.0 - CONFIDENCE


def mean_interval(values: Sequence[float]) -> Interval:
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan)
    half = _t_quantile(len(values) - 1) * _standard_error(values)
    return Interval(mean, mean - half, mean + half)


def paired_difference(first: str, second: str, a: Sequence[float], b: Sequence[float]) -> PairedDifference:
    differences = [x - y for x, y in zip(a, b, strict=True)]
    interval = mean_interval(differences)
    return PairedDifference(
        first,
        second,
        len(differences),
        interval.mean,
        interval.low,
        interval.high,
        _p_value(interval.mean, differences),
    )


def _p_value(mean: float, differences: Sequence[float]) -> float | None:
    from scipy.special import stdtr

    if len(differences) < 2:
        return None
    error = _standard_error(differences)
    if error == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    return float(2.0 * stdtr(len(differences) - 1, -abs(mean) / error))


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _t_quantile(degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + CONFIDENCE / 2.0))
