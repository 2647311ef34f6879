"""The transmit power a device chooses for itself, in closed form (Section IV-B).

Everything is said in s = ln(1 + p h / δ0²), the spectral efficiency in nats. Upload time is K/s with K = z ln2 / W and upload
energy is (δ0²/h) (e^s − 1) K/s, so C6 bounds s from below, C2 and C5 from above, and the cost is convex in 1/s. The two
Lambert functions of the paper become two increasing functions of s, inverted without loss of digits anywhere:

* C5 (C7 in the paper):     s = −x − W₋₁(−x e^−x)   solves  ln((e^s − 1)/s) = −ln x,  x = a δ0² ln2 / h;
* the unconstrained optimum: s = 1 + W₀((r − 1)/e)   solves  1 + (s − 1) e^s = r,  r = θ_t h / (θ_e δ0²).
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedtwin.config import Config
from fedtwin.config.fleet_csv import read_fleet_csv
from fedtwin.errors import FedtwinError
from fedtwin.formulas.compute import compute_energy_j, compute_time_s
from fedtwin.formulas.cost import cost
from fedtwin.formulas.rate import upload_energy_j, upload_nats, upload_time_s
from fedtwin.formulas.terms import Quantities, Terms, epochs_charged, own_terms, terms_of

REASONS = ("none", "compute-time", "compute-energy", "power-limit", "energy-limit", "unavailable")
BINDINGS = ("none", "time", "power", "energy")
NONE, COMPUTE_TIME, COMPUTE_ENERGY, POWER_LIMIT, ENERGY_LIMIT, UNAVAILABLE = range(6)
NOTHING_BINDS, TIME_BINDS, POWER_BINDS, ENERGY_BINDS = range(4)

TINY, HUGE = 1e-40, 1e40
MAX_EXPONENT = 700.0
SMALL_R, LARGE_R = 0.2, 1e260
MAX_NEWTON_STEPS = 60


class Plan(NamedTuple):
    """One device's round: its power, the interval C2, C5 and C6 leave it, and what it will cost."""

    power_w: float
    min_power_w: float
    max_power_w: float
    feasible: bool
    reason: int
    binding: int
    compute_s: float
    upload_s: float
    compute_j: float
    upload_j: float
    cost: float


def log_energy_ratio(s: float) -> float:
    """ln((e^s − 1)/s) for s > 0: increasing and convex, s/2 near 0 and s − ln s far away."""
    if s < 0.1:
        s2 = s * s
        return s / 2.0 + s2 / 24.0 * (1.0 - s2 / 120.0 * (1.0 - s2 / 63.0))
    return s + math.log1p(-math.exp(-s)) - math.log(s)


def efficiency_at_energy(log_budget: float) -> float:
    """The s > 0 with ln((e^s − 1)/s) = log_budget > 0, by Newton from the right, where it converges monotonically."""
    s = 2.0 * log_budget
    for _ in range(MAX_NEWTON_STEPS):
        slope = 0.5 + s / 12.0 if s < 1e-4 else 1.0 / -math.expm1(-s) - 1.0 / s
        step = (log_energy_ratio(s) - log_budget) / slope
        s -= step
        if abs(step) <= 1e-15 * s:
            break
    return s


def efficiency_at_optimum(r: float) -> float:
    """The s ≥ 0 with 1 + (s − 1) e^s = r: s = 1 + W₀((r − 1)/e), 0 for r = 0 and infinite for r = ∞."""
    if r == 0.0 or r == math.inf:
        return r
    if r < SMALL_R:
        return _small_efficiency_at_optimum(math.log(r))
    if r > LARGE_R:
        return _large_efficiency_at_optimum(math.log(r))
    log_1px = math.log1p((r - 1.0) / math.e)
    s = 1.0 + log_1px * (1.0 - math.log1p(log_1px) / (2.0 + log_1px))
    for _ in range(MAX_NEWTON_STEPS):
        newton = ((s - 1.0) + (1.0 - r) * math.exp(-s)) / s
        step = newton / (1.0 - 0.5 * newton * (s + 1.0) / s)
        s -= step
        if abs(step) <= 1e-6 * s:  # Halley's steps treble the digits: the next one would change nothing
            break
    return s


def _small_efficiency_at_optimum(log_r: float) -> float:
    """Where r is near 0 and s² / 2 near r: Newton in ln s on ln(1 + (s − 1) e^s), whose digits do not cancel."""
    s = math.exp(0.5 * (log_r + math.log(2.0)))
    for _ in range(MAX_NEWTON_STEPS):
        log_psi = _log_marginal(s)
        relative_step = (log_psi - log_r) / math.exp(2.0 * math.log(s) + s - log_psi)
        s *= math.exp(-relative_step)
        if abs(relative_step) <= 1e-15:
            break
    return s


def _log_marginal(s: float) -> float:
    """ln(1 + (s − 1) e^s) for small s > 0."""
    if s < 0.1:
        tail = 1.0 / 72.0 + s * (1.0 / 420.0 + s * (1.0 / 2880.0 + s / 22680.0))
        return 2.0 * math.log(s) - math.log(2.0) + math.log1p(s * (2.0 / 3.0 + s * (0.25 + s * (1.0 / 15.0 + s * tail))))
    return math.log(s * math.exp(s) - math.expm1(s))


def _large_efficiency_at_optimum(log_r: float) -> float:
    """Where e^s would overflow and the 1 does not matter: s + ln(s − 1) = ln r, by Newton."""
    s = log_r
    for _ in range(MAX_NEWTON_STEPS):
        step = (s + math.log(s - 1.0) - log_r) / (1.0 + 1.0 / (s - 1.0))
        s -= step
        if abs(step) <= 1e-15 * s:
            break
    return s


def power_at(noise_over_gain: float, s: float) -> float:
    """p = (δ0²/h)(e^s − 1), infinite where it overflows."""
    return noise_over_gain * math.expm1(s) if s < MAX_EXPONENT else math.inf


def efficiency_limit_of_energy(energy_left_j: float, least_energy_j: float) -> float:
    """Largest s that C5 allows, 0 where even the faintest upload, which costs K δ0²/h, spends more than is left."""
    margin = (energy_left_j - least_energy_j) / energy_left_j
    if margin <= 0.0:
        return 0.0
    log_budget = -math.log1p(-margin) if margin < 0.5 else math.log(energy_left_j / least_energy_j)
    return efficiency_at_energy(log_budget)


def price_ratio(terms: Terms, noise_over_gain: float) -> float:
    """r = θ_t h / (θ_e δ0²), with θ_t = λ_t/T_max and θ_e = λ_e/E_max; infinite where energy is free."""
    theta_t = (1.0 - terms.energy_weight) / terms.max_time_s
    theta_e = terms.energy_weight / terms.max_energy_j
    return theta_t / theta_e / noise_over_gain if theta_e > 0.0 else math.inf


def optimal_plan(terms: Terms, gain: float, cpu_hz: float, samples: float) -> Plan:
    """Problem P11: the power of least cost within C2, C5 and C6 (the three cases of Section IV-B), or why there is none."""
    compute_s = compute_time_s(terms, cpu_hz, samples)
    compute_j = compute_energy_j(terms, cpu_hz, samples)
    noise_over_gain = terms.noise_w / gain
    nats = upload_nats(terms)
    time_left_s, energy_left_j = terms.max_time_s - compute_s, terms.max_energy_j - compute_j

    s_time = nats / time_left_s if time_left_s > 0.0 else math.inf
    s_power = math.log1p(terms.max_power_w / noise_over_gain)
    s_energy = math.inf
    if terms.max_power_w * nats > energy_left_j * s_power:  # full power for the whole upload spends too much
        s_energy = efficiency_limit_of_energy(energy_left_j, nats * noise_over_gain) if energy_left_j > 0.0 else 0.0
    s_high = min(s_power, s_energy)
    min_power_w = power_at(noise_over_gain, s_time)
    max_power_w = terms.max_power_w if s_power <= s_energy else power_at(noise_over_gain, s_energy)

    reason = NONE
    if time_left_s <= 0.0:
        reason = COMPUTE_TIME
    elif energy_left_j <= 0.0:
        reason = COMPUTE_ENERGY
    elif s_time > s_high:
        reason = POWER_LIMIT if s_power <= s_energy else ENERGY_LIMIT
    if reason != NONE:
        return Plan(
            0.0, min_power_w, max_power_w, False, reason, NOTHING_BINDS,
            compute_s, math.inf, compute_j, math.inf, math.inf,
        )  # fmt: skip

    s_best = efficiency_at_optimum(price_ratio(terms, noise_over_gain))
    if s_best <= s_time:
        power_w, binding = min(min_power_w, max_power_w), TIME_BINDS
    elif s_best >= s_high:
        power_w, binding = max_power_w, POWER_BINDS if s_power <= s_energy else ENERGY_BINDS
    else:
        power_w, binding = power_at(noise_over_gain, s_best), NOTHING_BINDS
    return _plan_at(terms, gain, power_w, min_power_w, max_power_w, binding, compute_s, compute_j)


def full_power_plan(terms: Terms, gain: float, cpu_hz: float, samples: float) -> Plan:
    """The baselines that do not control power: p_max always, with no look at C5 and C6."""
    compute_s = compute_time_s(terms, cpu_hz, samples)
    compute_j = compute_energy_j(terms, cpu_hz, samples)
    return _plan_at(terms, gain, terms.max_power_w, 0.0, terms.max_power_w, POWER_BINDS, compute_s, compute_j)


def _plan_at(
    terms: Terms, gain: float, power_w: float, min_power_w: float, max_power_w: float,
    binding: int, compute_s: float, compute_j: float,
) -> Plan:  # fmt: skip
    upload_s = upload_time_s(terms, gain, power_w)
    upload_j = upload_energy_j(power_w, upload_s)
    total = cost(terms, compute_s + upload_s, compute_j + upload_j)
    return Plan(power_w, min_power_w, max_power_w, True, NONE, binding, compute_s, upload_s, compute_j, upload_j, total)


def no_answer() -> Plan:
    """Of a device that is not there when it is asked."""
    return Plan(0.0, 0.0, 0.0, False, UNAVAILABLE, NOTHING_BINDS, 0.0, math.inf, 0.0, math.inf, math.inf)


@dataclass(frozen=True)
class PowerPlan:
    """What ``plan_power`` answers: numbers for scalar input, arrays of one shape otherwise."""

    power_w: Any
    min_power_w: Any
    max_power_w: Any
    feasible: Any
    reason: Any
    binding: Any
    time_s: Any
    energy_j: Any
    cost: Any


def plan_power(
    config: Config,
    gain: ArrayLike,
    cpu_hz: ArrayLike,
    samples: ArrayLike,
    *,
    max_power_w: ArrayLike | None = None,
    cycles_per_sample: ArrayLike | None = None,
    update_bits: ArrayLike | None = None,
    max_time_s: ArrayLike | None = None,
    max_energy_j: ArrayLike | None = None,
) -> PowerPlan:
    """The optimal power of every (gain, CPU frequency, samples), broadcast together.

    What a device has of its own (p_n^max, c_n, z_n, its T_max and E_max) goes with them; else it is as configured.

    Infeasible: power 0, time, energy and cost infinite, and a reason from ``REASONS``. ``binding`` names the limit the
    power stops at (``BINDINGS``), or none for the inner optimum.
    """
    terms = terms_of(config)
    own = Quantities(max_power_w, cycles_per_sample, update_bits, max_time_s, max_energy_j)  # type: ignore[arg-type]
    own = Quantities(*(_of_fleet(config, name, given) for name, given in own._asdict().items()))
    inputs = {
        "gain": _checked("gain", gain, 1e-60, 1e60),
        "cpu_hz": _checked("cpu_hz", cpu_hz, 1, 1e15),
        "samples": _checked("samples", samples, 1, 1e12),
        **{name: _checked(name, given, TINY, HUGE) for name, given in own._asdict().items() if given is not None},
    }
    try:
        columns = np.broadcast_arrays(*inputs.values())
    except ValueError:
        shapes = ", ".join(str(numbers.shape) for numbers in inputs.values())
        *others, last = inputs
        raise FedtwinError(f"{', '.join(others)} and {last} have shapes {shapes}, which do not go together.") from None
    configured, given = Quantities(*(getattr(terms, name) for name in Quantities._fields)), list(inputs)[3:]
    plans = []
    for gain_, cpu_hz_, samples_, *others_ in zip(*(column.ravel().tolist() for column in columns), strict=True):
        of_device = configured._replace(**dict(zip(given, others_, strict=True)))
        plans.append(optimal_plan(own_terms(terms, of_device), gain_, cpu_hz_, samples_))
    shape = columns[0].shape

    def field(values: list[Any], kind: type = float) -> Any:
        return np.array(values, dtype=kind).reshape(shape) if shape else values[0]

    return PowerPlan(
        power_w=field([plan.power_w for plan in plans]),
        min_power_w=field([plan.min_power_w for plan in plans]),
        max_power_w=field([plan.max_power_w for plan in plans]),
        feasible=field([plan.feasible for plan in plans], bool),
        reason=field([REASONS[plan.reason] for plan in plans], str),
        binding=field([BINDINGS[plan.binding] for plan in plans], str),
        time_s=field([plan.compute_s + plan.upload_s for plan in plans]),
        energy_j=field([plan.compute_j + plan.upload_j for plan in plans]),
        cost=field([plan.cost for plan in plans]),
    )


def _of_fleet(config: Config, name: str, given: Any) -> Any:
    """What is given, or what all devices of the fleet have alike; a sentence where each has its own."""
    pair = getattr(config.fleet, name)
    if given is not None or (pair is None and not _has_column(config, name)):
        return given
    if pair is not None and pair[0] == pair[1]:
        return pair[0] * (epochs_charged(config) if name == "cycles_per_sample" else 1)
    where = "fleet.file" if pair is None else f"fleet.{name}"
    raise FedtwinError(f"{where} gives every device a {name} of its own: say which one, {name} = a number.")


def _has_column(config: Config, name: str) -> bool:
    return config.fleet.file is not None and name in read_fleet_csv(Path(config.fleet.file))[0].own


def _checked(name: str, values: ArrayLike, low: float, high: float) -> NDArray[np.float64]:
    try:
        if np.asarray(values).dtype == np.bool_:
            raise TypeError
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise FedtwinError(f"{name} = {values!r} is not a number or an array of numbers.") from None
    wrong = numbers[~((numbers >= low) & (numbers <= high))]
    if wrong.size:
        raise FedtwinError(f"{name} = {wrong.flat[0]} is not allowed: it must be a number from {low:g} to {high:g}.")
    return numbers
