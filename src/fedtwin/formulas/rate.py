"""The uplink: path loss, rate, upload time and energy (Section III-C and Section V)."""

import math

from fedtwin.formulas.terms import Terms

LN2 = math.log(2.0)


def path_gain(distance_m: float) -> float:
    """Large-scale gain from the path loss 128.1 + 37.6 log10(d / km) dB of Section V."""
    loss_db = 128.1 + 37.6 * math.log10(distance_m / 1000.0)
    return math.pow(10.0, -loss_db / 10.0)


def upload_nats(terms: Terms) -> float:
    """z ln 2 / W: upload time is this over ln(1 + SNR)."""
    return terms.update_bits * LN2 / terms.bandwidth_hz


def upload_time_s(terms: Terms, gain: float, power_w: float) -> float:
    """T_com = z / (W log2(1 + p h / δ0²)): equations (uplink transmission rate) and (transmission time), Section III-C."""
    return upload_nats(terms) / math.log1p(power_w * gain / terms.noise_w)


def upload_energy_j(power_w: float, upload_s: float) -> float:
    """E_com = p T_com, Section III-C."""
    return power_w * upload_s
