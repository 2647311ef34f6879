"""The best stationary policy that meets C1, and the regret bounds of Theorem 4 (Section IV-D).

A stationary policy picks device n with frequency π_n whatever the channel. Its cost Σ π_n E[Ω_n] is linear, so the best one
is a linear program. A busy device cannot be chosen: with M in flight rounds come at the rate M / Σ π_k E[T_k], device n
serves at most 1 / E[T_n] of them, hence M π_n E[T_n] ≤ Σ_k π_k E[T_k], which is linear too.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.sim.engine import Engine

FIRST_ROUND = 2**40
DRAWS_PER_DEVICE = 10_000


@dataclass(frozen=True)
class StationaryCosts:
    """s* with a busy device left out, and the cost if devices were never busy; and the largest D_n, for the bound."""

    with_busy_devices: float
    without: float
    largest_samples: int


def stationary_costs(config: Config, draws: int = DRAWS_PER_DEVICE) -> StationaryCosts:
    """Expectations are means over rounds far beyond any run, so that they share no draw with it."""
    engine = Engine(config)
    devices = len(engine.world.fleet)
    mean_cost, mean_time_s = np.empty(devices), np.empty(devices)
    for device in range(devices):
        plans = [engine.ask(device, FIRST_ROUND + k)[1] for k in range(draws)]
        accepted = [plan for plan in plans if plan.feasible]
        if not accepted:
            raise FedtwinError(f"Device {device} declined all of {draws} rounds: no stationary policy meets C1.")
        mean_cost[device] = math.fsum(plan.cost for plan in accepted) / len(accepted)
        mean_time_s[device] = math.fsum(plan.compute_s + plan.upload_s for plan in accepted) / len(accepted)
    samples = np.array([device.samples for device in engine.world.fleet])
    least = config.objective.min_mean_samples / samples
    busy = config.fleet.channels * np.diag(mean_time_s) - mean_time_s
    return StationaryCosts(
        with_busy_devices=_least_cost(mean_cost, least, busy),
        without=_least_cost(mean_cost, least, None),
        largest_samples=int(samples.max()),
    )


def _least_cost(mean_cost: NDArray[np.float64], least: NDArray[np.float64], busy: NDArray[np.float64] | None) -> float:
    from scipy.optimize import linprog

    solution = linprog(
        mean_cost,
        A_ub=busy,
        b_ub=None if busy is None else np.zeros(len(mean_cost)),
        A_eq=np.ones((1, len(mean_cost))),
        b_eq=[1.0],
        bounds=[(float(low), 1.0) for low in least],
    )
    if not solution.success or solution.fun is None:
        raise FedtwinError("No stationary policy meets C1 on this fleet: objective.min_mean_samples is too large.")
    return float(solution.fun)


def paper_bound(devices: int, min_mean_samples: float, v: float, rounds: float) -> float:
    """N D_min² / (2Ṽ) + (2 √(6 N T ln T) + 4N) / T: Theorem 4 as printed, Section IV-D."""
    return devices * min_mean_samples**2 / (2.0 * v) + _learning_term(devices, rounds)


def corrected_bound(devices: int, min_mean_samples: float, largest_samples: float, v: float, rounds: float) -> float:
    """The first constant with the chosen device's own term, which the paper drops: [(N−1) D_min² + (D_max − D_min)²] / (2Ṽ)."""
    drift = (devices - 1) * min_mean_samples**2 + (largest_samples - min_mean_samples) ** 2
    return drift / (2.0 * v) + _learning_term(devices, rounds)


def _learning_term(devices: int, rounds: float) -> float:
    return (2.0 * math.sqrt(6.0 * devices * rounds * math.log(rounds)) + 4.0 * devices) / rounds
