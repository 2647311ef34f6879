"""The best stationary policy that meets C1, and the regret bounds of Theorem 4 (Section IV-D).

A stationary policy picks device n with frequency π_n whatever the channel. Its cost Σ π_n E[Ω_n] is linear, so the best one
is a linear program. A busy device cannot be chosen: with M in flight rounds come at the rate M / Σ π_k E[T_k], device n
serves at most 1 / E[T_n] of them, hence M π_n E[T_n] ≤ Σ_k π_k E[T_k], which is linear too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.compiling import can_compile
from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.power import full_power_plan, optimal_plan
from fedtwin.policies import power_rule
from fedtwin.sim.fast.compile import compiled_for, exchanged_in
from fedtwin.sim.fast.layout import Fleet, Rules
from fedtwin.sim.fast.state import new_start
from fedtwin.sim.fast.steps import answer_of, draw_of, terms_in
from fedtwin.world.fleet import fleet_columns
from fedtwin.world.world import World

FIRST_ROUND, FIRST_MOMENT = 2**40, 2**20
DRAWS_PER_DEVICE = 10_000
WORTH_COMPILING = 100_000


@dataclass(frozen=True)
class StationaryCosts:
    """s* with a busy device left out, and the cost if devices were never busy; and the largest D_n, for the bound."""

    with_busy_devices: float
    without: float
    largest_samples: int


def stationary_costs(config: Config, draws: int = DRAWS_PER_DEVICE) -> StationaryCosts:
    """Expectations are means over rounds far beyond any run, so that they share no draw with it."""
    world = World(config)
    devices = len(world.fleet)
    mean_cost, mean_time_s, samples, most_samples = (np.empty(devices) for _ in range(4))
    mean_of = _compiled_mean(config) if can_compile() and devices * draws >= WORTH_COMPILING else _readable_mean(config, world)
    for device in range(devices):
        found = mean_of(device, draws)
        if found.accepted == 0:
            raise FedtwinError(f"Device {device} declined all of {draws} rounds: no stationary policy meets C1.")
        mean_cost[device], mean_time_s[device] = found.cost, found.time_s
        samples[device], most_samples[device] = found.samples, found.most_samples
    least = config.objective.min_mean_samples / samples
    busy = config.fleet.channels * np.diag(mean_time_s) - mean_time_s
    return StationaryCosts(
        with_busy_devices=_least_cost(mean_cost, least, busy),
        without=_least_cost(mean_cost, least, None),
        largest_samples=int(most_samples.max()),
    )


class Means(NamedTuple):
    """Over the rounds that a device would accept."""

    accepted: int
    cost: float
    time_s: float
    samples: float
    most_samples: float


MeanOf = Callable[[int, int], Means]


def mean_over_rounds(rules: Rules, fleet: Fleet, device: int, draws: int) -> Means:
    """What the device would take in the mean, over so many rounds; meant to be compiled."""
    accepted, cost, time_s, samples, most_samples = 0, 0.0, 0.0, 0.0, 0.0
    for k in range(draws):
        clock_s = (FIRST_MOMENT + k) * rules.terms.max_time_s
        draw = draw_of(rules, fleet, device, FIRST_ROUND + k, clock_s)
        plan = answer_of(terms_in(rules, fleet, device), draw)
        if plan.feasible:
            accepted += 1
            cost += plan.cost
            time_s += plan.compute_s + plan.upload_s
            samples += draw.samples
            most_samples = max(most_samples, draw.samples)
    count = max(accepted, 1)
    return Means(accepted, cost / count, time_s / count, samples / count, most_samples)


def _compiled_mean(config: Config) -> MeanOf:
    exchanged, fleet = exchanged_in(config), fleet_columns(config)
    fast = compiled_for(exchanged, mean_over_rounds, "stationary", "the best stationary policy")
    start = new_start(config, fleet, np.zeros(len(fleet.samples), np.int64), (), 0, indexed=False, noted=False)
    return lambda device, draws: fast(start.rules, start.state.fleet, device, draws)


def _readable_mean(config: Config, world: World) -> MeanOf:
    """The same, one device after the other in plain Python."""
    plan_of = optimal_plan if power_rule(config) == "optimal" else full_power_plan

    def mean(device: int, draws: int) -> Means:
        terms, accepted, cost, time_s, samples, most_samples = world.terms_of(device), 0, 0.0, 0.0, 0.0, 0.0
        for k in range(draws):
            draw = world.draw(device, FIRST_ROUND + k, (FIRST_MOMENT + k) * world.terms.max_time_s)
            plan = plan_of(terms, draw.gain, draw.cpu_hz, draw.samples)
            if draw.available and plan.feasible:
                accepted += 1
                cost += plan.cost
                time_s += plan.compute_s + plan.upload_s
                samples += draw.samples
                most_samples = max(most_samples, float(draw.samples))
        count = max(accepted, 1)
        return Means(accepted, cost / count, time_s / count, samples / count, most_samples)

    return mean


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


def bound_with_first_constant_mended(
    devices: int, min_mean_samples: float, largest_samples: float, v: float, rounds: float
) -> float:
    """The first constant with the chosen device's own term, which the paper drops: [(N−1) D_min² + (D_max − D_min)²] / (2Ṽ).

    One constant only: no bound is proven by it (docs/symbols.md, corrections).
    """
    drift = (devices - 1) * min_mean_samples**2 + (largest_samples - min_mean_samples) ** 2
    return drift / (2.0 * v) + _learning_term(devices, rounds)


def _learning_term(devices: int, rounds: float) -> float:
    return (2.0 * math.sqrt(6.0 * devices * rounds * math.log(rounds)) + 4.0 * devices) / rounds
