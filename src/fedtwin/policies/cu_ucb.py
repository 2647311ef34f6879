"""CU-UCB, Algorithm 1: virtual queues and upper confidence bounds."""

import math

from fedtwin.policies.base import Knobs, Policy, View, rounds_ahead


def optimistic_cost(round_: int, observations: int, mean_cost: float, bonus_scale: float) -> float:
    """s̃_n(t) = max{ s̄_n(t−1) − √(3 ln t / (2 Γ_n(t−1))), 0 }, and 0 while Γ_n = 0: equation (UCB estimate), Section IV-C."""
    return max(mean_cost - bonus(round_, observations, bonus_scale), 0.0) if observations else 0.0


def bonus(round_: int, observations: int, bonus_scale: float) -> float:
    """√(3 ln t / (2 Γ_n(t−1))), the confidence radius, times its scale; Γ_n > 0."""
    return bonus_scale * math.sqrt(1.5 * math.log(round_) / observations)


def score(view: View, knobs: Knobs) -> float:
    """Ṽ s̃_n(t) − Q_n(t) D_n: equation (select the minimal arm), Section IV-C."""
    cost = optimistic_cost(view.round, view.observations, view.mean_cost, knobs.bonus_scale)
    return knobs.v * cost - view.queue * view.samples


def lead(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:
    """The second gains by its larger queue growth D_min D_n, and by its bonus until that clips its cost to 0.

    The bonus is concave in t, so it never grows faster than now: by √(1.5/Γ) / (2 t √ln t) a round.
    """
    closing = max(behind.samples - ahead.samples, 0.0) * knobs.min_mean_samples
    if optimistic_cost(behind.round, behind.observations, behind.mean_cost, knobs.bonus_scale) > 0.0:
        closing += knobs.v * bonus_growth(behind, knobs)
    size = knobs.v * (cost_terms(ahead, knobs) + cost_terms(behind, knobs)) + queue_terms(ahead) + queue_terms(behind)
    growth = knobs.v * (bonus_growth(ahead, knobs) + bonus_growth(behind, knobs))
    growth += (ahead.samples + behind.samples) * knobs.min_mean_samples
    return rounds_ahead(gap, closing, size, growth)


def bonus_growth(view: View, knobs: Knobs) -> float:
    """d/dt of the confidence radius, from which it only falls."""
    if view.observations == 0 or knobs.bonus_scale == 0.0:
        return 0.0
    if view.round == 1:
        return math.inf
    return knobs.bonus_scale * math.sqrt(1.5 / view.observations) / (2.0 * view.round * math.sqrt(math.log(view.round)))


def cost_terms(view: View, knobs: Knobs) -> float:
    """Mean and bonus, whatever their difference."""
    return view.mean_cost + bonus(view.round, view.observations, knobs.bonus_scale) if view.observations else 0.0


def queue_terms(view: View) -> float:
    """The part of a score that grows with the queue, and the rounds that made it."""
    return abs(view.queue) * view.samples


def explain(view: View, knobs: Knobs) -> dict[str, float]:
    """What the device is known to cost, what is taken off for doubt, and what its queue asks for."""
    cost = optimistic_cost(view.round, view.observations, view.mean_cost, knobs.bonus_scale)
    return {
        "V·cost": knobs.v * view.mean_cost,
        "bonus": knobs.v * (cost - view.mean_cost),
        "queue": -view.queue * view.samples,
    }


POLICY = Policy(score, power="optimal", lead=lead, explain=explain)
