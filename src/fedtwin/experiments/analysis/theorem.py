"""Theorem 1: the bound on min_t ‖∇L(w(t))‖², term by term."""

from typing import TYPE_CHECKING, NamedTuple

from fedtwin.config import Config

if TYPE_CHECKING:
    from fedtwin.learning.probe import Constants

EPSILON = 1.0
"""ε₀ of the theorem, "any small" number: the whole bound is divided by it, so a smaller one only lifts it."""


class Terms(NamedTuple):
    """The five terms as printed, T cancelled in the last four where the paper leaves it, O(x) read as x."""

    falling: float
    local_steps: float
    staleness: float
    mixed_staleness: float
    local_staleness: float


def theorem_1_terms(config: Config, constants: "Constants", *, loss_fallen: float, max_staleness: int, rounds: int) -> Terms:
    """``loss_fallen`` is L(w(1)) − L(w(T + 1)). The learning settings give ρ and η, the fleet D̂_min and D̂_max."""
    if config.learning is None:
        raise ValueError("Theorem 1 is about training")
    rho, eta = config.learning.mixing, config.learning.learning_rate
    least, most = config.fleet.samples_min, config.fleet.samples_max
    a1, a2, delta = constants.a1, constants.a2, max_staleness
    return Terms(
        loss_fallen / (rho * eta * EPSILON * rounds * least),
        eta * most**3 * a2 / (EPSILON * least),
        rho * delta * most * (a1 * a2) ** 0.5 / (EPSILON * least),
        rho**2 * eta * delta**2 * most**2 * a2 / (EPSILON * least),
        eta * delta**2 * most**2 * a2 / (EPSILON * least),
    )
