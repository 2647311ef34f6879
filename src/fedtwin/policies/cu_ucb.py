"""CU-UCB, Algorithm 1: virtual queues and upper confidence bounds."""

import math

from fedtwin.policies.base import Knobs, Policy, View


def optimistic_cost(round_: int, observations: int, mean_cost: float, bonus_scale: float) -> float:
    """s̃_n(t) = max{ s̄_n(t−1) − √(3 ln t / (2 Γ_n(t−1))), 0 }, and 0 while Γ_n = 0: equation (UCB estimate), Section IV-C."""
    if observations == 0:
        return 0.0
    return max(mean_cost - bonus_scale * math.sqrt(1.5 * math.log(round_) / observations), 0.0)


def score(view: View, knobs: Knobs) -> float:
    """Ṽ s̃_n(t) − Q_n(t) D_n: equation (select the minimal arm), Section IV-C."""
    cost = optimistic_cost(view.round, view.observations, view.mean_cost, knobs.bonus_scale)
    return knobs.v * cost - view.queue * view.samples


POLICY = Policy(score, power="optimal")
