"""Staleness functions s(t − τ) of FedAsync: 1 for a fresh update, falling with its age (Section III-B; Xie et al., 2019)."""

from fedtwin.learning.aggregation.base import Mixing


def constant() -> float:
    """Every update counts alike."""
    return 1.0


def polynomial(staleness: int, exponent: float) -> float:
    """(t − τ + 1)^−a: the paper's choice, Section III-B."""
    return float((staleness + 1.0) ** -exponent)


def hinge(staleness: int, a: float, b: float) -> float:
    """1 up to b, then 1 / (a (t − τ − b) + 1)."""
    return 1.0 if staleness <= b else 1.0 / (a * (staleness - b) + 1.0)


def staleness_weight(settings: Mixing, staleness: int) -> float:
    """The configured function of the staleness."""
    if settings.staleness == "polynomial":
        return polynomial(staleness, settings.staleness_exponent)
    if settings.staleness == "hinge":
        return hinge(staleness, settings.hinge_a, settings.hinge_b)
    return constant()
