import itertools
import math

import numpy as np
import pytest

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.analysis.stationary import _least_cost, bound_with_first_constant_mended, paper_bound, stationary_costs
from fedtwin.sim import simulate


def test_the_linear_program_against_a_grid() -> None:
    """Three devices, two channels: every frequency vector on a fine grid, judged by the constraints as they are said."""
    cost, time_s, least = np.array([0.3, 0.5, 0.6]), np.array([0.5, 0.7, 0.9]), np.array([0.1, 0.1, 0.2])
    best = math.inf
    for a, b in itertools.product(np.linspace(0, 1, 401), repeat=2):
        pi = np.array([a, b, 1 - a - b])
        rate_per_s = 2 / (pi @ time_s)
        if np.all(pi >= least - 1e-12) and np.all(pi * rate_per_s <= 1 / time_s + 1e-12):
            best = min(best, float(pi @ cost))
    busy = 2 * np.diag(time_s) - time_s
    assert _least_cost(cost, least, busy) == pytest.approx(best, abs=2e-3)
    assert _least_cost(cost, least, busy) <= best + 1e-9
    assert _least_cost(cost, least, None) == pytest.approx(0.3 * 0.7 + 0.5 * 0.1 + 0.6 * 0.2)


def test_a_busy_fleet_is_dearer_and_cu_ucb_is_between() -> None:
    costs = stationary_costs(Config(), draws=600)
    assert costs.without < costs.with_busy_devices
    learned = simulate(load_config(overrides={"run.rounds": 6000, "policy.bonus_scale": 0.1}), records=False).summary
    everybody = simulate(load_config(overrides={"run.rounds": 6000, "policy.name": "As-Q-only"}), records=False).summary
    assert learned.mean_cost is not None and everybody.mean_cost is not None
    assert costs.with_busy_devices - 0.01 < learned.mean_cost < everybody.mean_cost


def test_an_impossible_c1_has_no_stationary_policy() -> None:
    with pytest.raises(FedtwinError, match="No stationary policy"):
        stationary_costs(load_config(overrides={"objective.min_mean_samples": 4.0}), draws=50)


def test_the_bounds_are_the_papers_and_the_one_with_the_first_constant_mended() -> None:
    learning = (2 * math.sqrt(6 * 30 * 1e4 * math.log(1e4)) + 120) / 1e4
    assert learning == pytest.approx(0.8262, abs=1e-3)
    assert paper_bound(30, 1.0, 1e5, 1e4) == pytest.approx(30 / 2e5 + learning)
    assert bound_with_first_constant_mended(30, 1.0, 100, 1e5, 1e4) == pytest.approx((29 + 99**2) / 2e5 + learning)
