"""The constants of one device's round as plain floats in SI units, for the scalar formulas."""

from typing import Any, NamedTuple

from fedtwin.config import Config
from fedtwin.errors import FedtwinError


class Terms(NamedTuple):
    """Symbols of Sections III and IV; docs/symbols.md lists them."""

    bandwidth_hz: float
    noise_w: float
    max_power_w: float
    update_bits: float
    cycles_per_sample: float
    capacitance: float
    energy_weight: float
    max_time_s: float
    max_energy_j: float


def epochs_charged(config: Config) -> int:
    """How often c is paid for one local training: once, unless ``learning.charge_epochs`` asks for every pass."""
    learning = config.learning
    return learning.local_epochs if learning is not None and learning.charge_epochs else 1


def update_bits_of(config: Config) -> float:
    """z. The bits of a model are known when it is made, and stand in the settings from then on (``learning.charges``)."""
    bits = config.radio.update_bits
    if bits == "model":
        raise FedtwinError(
            "radio.update_bits = 'model' is not known before the model of [learning] is made, which a run does: state a number."
        )
    return bits


def terms_of(config: Config) -> Terms:
    """The only place where decibels become watts."""
    return Terms(
        bandwidth_hz=config.radio.bandwidth_hz,
        noise_w=10.0 ** ((config.radio.noise_dbm - 30.0) / 10.0),
        max_power_w=config.radio.max_power_w,
        update_bits=update_bits_of(config),
        cycles_per_sample=config.compute.cycles_per_sample * epochs_charged(config),
        capacitance=config.compute.capacitance,
        energy_weight=config.objective.energy_weight,
        max_time_s=config.objective.max_time_s,
        max_energy_j=config.objective.max_energy_j,
    )


class Quantities(NamedTuple):
    """What may be a device's own of these: p_n^max, c_n, z_n, and its T_max and E_max."""

    max_power_w: float
    cycles_per_sample: float
    update_bits: float
    max_time_s: float
    max_energy_j: float


def own_terms(terms: Terms, own: Any) -> Terms:
    """The terms of one device; ``own`` is whatever has the fields of ``Quantities``. It is compiled as well."""
    return Terms(
        terms.bandwidth_hz,
        terms.noise_w,
        own.max_power_w,
        own.update_bits,
        own.cycles_per_sample,
        terms.capacitance,
        terms.energy_weight,
        own.max_time_s,
        own.max_energy_j,
    )
