"""What an update would take, by the power rule at what the twin knows: the formulas on the server's side of a decision."""

import math
from collections.abc import Callable

from fedtwin.formulas.power import Plan
from fedtwin.formulas.terms import Terms
from fedtwin.policies.base import Prediction

PowerRuleOf = Callable[[Terms, float, float, float], Plan]


def predict(rule: PowerRuleOf, terms: Terms, gain: float, cpu_hz: float, samples: float) -> Prediction:
    """At a gain and a CPU frequency that may be unknown yet (NaN)."""
    if math.isnan(gain) or math.isnan(cpu_hz):
        return Prediction(math.nan, math.nan, math.nan, False, False)
    plan = rule(terms, gain, cpu_hz, samples)
    return prediction_in(plan, rule(terms, gain, cpu_hz, 0.0).feasible if not plan.feasible else False)


def prediction_in(plan: Plan, by_its_cpu: bool) -> Prediction:
    time_s, energy_j = plan.compute_s + plan.upload_s, plan.compute_j + plan.upload_j
    return Prediction(time_s, energy_j, plan.cost, plan.feasible, by_its_cpu)
