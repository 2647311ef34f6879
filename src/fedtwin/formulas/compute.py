"""The processor: training time and energy (Section III-C)."""

import math

from fedtwin.formulas.terms import Terms

ROUNDING = 1e-9


def most_stray(samples: int, spread: float) -> int:
    """How many samples D_n(t) may be away from D_n: the whole ones in D_n · spread, in spite of rounding."""
    return math.floor(float(samples) * spread + ROUNDING)


def compute_time_s(terms: Terms, cpu_hz: float, samples: float) -> float:
    """T_cmp = D_n c / f_n, Section III-C."""
    return samples * terms.cycles_per_sample / cpu_hz


def compute_energy_j(terms: Terms, cpu_hz: float, samples: float) -> float:
    """E_cmp = ζ D_n c f_n², Section III-C."""
    return terms.capacitance * samples * terms.cycles_per_sample * cpu_hz * cpu_hz
