"""What one local update costs (Section IV)."""

from fedtwin.formulas.terms import Terms

ROUNDING = 1e-9


def cost(terms: Terms, time_s: float, energy_j: float) -> float:
    """Ω_n = λ_t T / T_max + λ_e E / E_max: the equation above problem P0, Section IV."""
    time_weight = 1.0 - terms.energy_weight
    return time_weight * time_s / terms.max_time_s + terms.energy_weight * energy_j / terms.max_energy_j


def within(value: float, limit: float) -> bool:
    """Whether C5 or C6 holds; a plan that stops at the limit keeps it in spite of rounding."""
    return value <= limit * (1.0 + ROUNDING)
