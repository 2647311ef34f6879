"""The processor: the CPU frequency of a round, training time and energy (Section III-C and Section V)."""

import math

from fedtwin.physics.terms import Terms


def cpu_frequency_hz(mean_hz: float, std_hz: float, floor_hz: float, uniform1: float, uniform2: float) -> float:
    """f_n(t) ~ Normal(mean, std) clipped at the floor, from two uniform numbers in (0, 1) by Box and Muller."""
    normal = math.sqrt(-2.0 * math.log(uniform1)) * math.cos(2.0 * math.pi * uniform2)
    return max(mean_hz + std_hz * normal, floor_hz)


def compute_time_s(terms: Terms, cpu_hz: float, samples: float) -> float:
    """T_cmp = D_n c / f_n, Section III-C."""
    return samples * terms.cycles_per_sample / cpu_hz


def compute_energy_j(terms: Terms, cpu_hz: float, samples: float) -> float:
    """E_cmp = ζ D_n c f_n², Section III-C."""
    return terms.capacitance * samples * terms.cycles_per_sample * cpu_hz * cpu_hz
