"""What an update would take, by the power rule at what the twin knows: the formulas on the server's side of a decision."""

import math
from collections.abc import Callable

from fedtwin.formulas.power import COMPUTE_ENERGY, COMPUTE_TIME, Plan
from fedtwin.formulas.terms import Terms
from fedtwin.policies.base import Prediction

PowerRuleOf = Callable[[Terms, float, float, float], Plan]


def predict(rule: PowerRuleOf, terms: Terms, gain: float, cpu_hz: float, samples: float) -> Prediction:
    """At a gain and a CPU frequency that may be unknown yet (NaN)."""
    if math.isnan(gain) or math.isnan(cpu_hz):
        return Prediction(math.nan, math.nan, math.nan, False, False)
    return prediction_in(rule(terms, gain, cpu_hz, samples))


def prediction_in(plan: Plan) -> Prediction:
    by_its_cpu = plan.reason == COMPUTE_TIME or plan.reason == COMPUTE_ENERGY
    time_s, energy_j = plan.compute_s + plan.upload_s, plan.compute_j + plan.upload_j
    return Prediction(time_s, energy_j, plan.cost, plan.feasible, by_its_cpu)
