"""twin-dpp: drift plus penalty with the twin's prediction in place of a learned mean. It need not learn what the twin knows."""

import math

from fedtwin.policies.base import Knobs, Policy, Prediction, View

COST_OF_AN_OLD_REFUSAL = 1.0


def predicted_cost(view: View) -> float:
    """Ω̂_n: 0 of a device never heard of; of one that would decline, infinite if its link of this moment decides, else 1.

    Nobody starves by an old fact: neither by a link it had once, nor by a CPU that was slow when it was heard of.
    """
    prediction: Prediction = view.prediction
    if math.isnan(prediction.cost):
        return 0.0
    if prediction.feasible:
        return prediction.cost
    return math.inf if view.gain_age_s == 0.0 and not prediction.by_its_cpu else COST_OF_AN_OLD_REFUSAL


def score(view: View, knobs: Knobs) -> float:
    """Ṽ Ω̂_n − Q_n(t) D_n: problem P12, Section IV-B, with what the twin predicts. Who is sure to decline comes last."""
    cost = predicted_cost(view)
    if math.isinf(cost):
        return math.inf
    return knobs.v * cost - view.queue * view.samples


def explain(view: View, knobs: Knobs) -> dict[str, float]:
    """Cost and queue."""
    return {"V·cost": knobs.v * predicted_cost(view), "queue": -view.queue * view.samples}


POLICY = Policy(score, power="optimal", predicts=True, explain=explain)
