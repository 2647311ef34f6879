"""Staleness functions s(t − τ) of FedAsync: 1 for a fresh update, falling with its age (Section III-B; Xie et al., 2019)."""

from fedtwin.config import LearningConfig


def constant() -> float:
    """Every update counts alike."""
    return 1.0


def polynomial(staleness: int, exponent: float) -> float:
    """(t − τ + 1)^−a: the paper's choice, Section III-B."""
    return float((staleness + 1.0) ** -exponent)


def hinge(staleness: int, a: float, b: float) -> float:
    """1 up to b, then 1 / (a (t − τ − b) + 1)."""
    return 1.0 if staleness <= b else 1.0 / (a * (staleness - b) + 1.0)


def staleness_weight(config: LearningConfig, staleness: int) -> float:
    """The configured function of the staleness."""
    if config.staleness == "polynomial":
        return polynomial(staleness, config.staleness_exponent)
    if config.staleness == "hinge":
        return hinge(staleness, config.hinge_a, config.hinge_b)
    return constant()
