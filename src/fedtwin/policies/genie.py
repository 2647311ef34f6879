"""Genie: CU-UCB that need not learn. A yardstick, not a policy: no server can know the cost of a round before it is run."""

import math

from fedtwin.policies.base import Knobs, OraclePolicy, View


def score(view: View, true_cost: float, knobs: Knobs) -> float:
    """Ṽ Ω_n(t) − Q_n(t) D_n with the true Ω_n(t): problem P12, Section IV-B. An infeasible device comes last."""
    if math.isinf(true_cost):
        return math.inf
    return knobs.v * true_cost - view.queue * view.samples


POLICY = OraclePolicy(score, power="optimal")
