"""The processor: training time and energy (Section III-C)."""

from fedtwin.formulas.terms import Terms


def compute_time_s(terms: Terms, cpu_hz: float, samples: float) -> float:
    """T_cmp = D_n c / f_n, Section III-C."""
    return samples * terms.cycles_per_sample / cpu_hz


def compute_energy_j(terms: Terms, cpu_hz: float, samples: float) -> float:
    """E_cmp = ζ D_n c f_n², Section III-C."""
    return terms.capacitance * samples * terms.cycles_per_sample * cpu_hz * cpu_hz
