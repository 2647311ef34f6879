"""What the asynchronous and the synchronous run do alike: look at a device, rate it, ask it, write down what it answered."""

import math

from fedtwin.formulas.cost import within
from fedtwin.formulas.power import Plan
from fedtwin.formulas.terms import Terms
from fedtwin.policies.base import Knobs, View, as_if_told, last_if_nan
from fedtwin.records.summary import tally_arrival, tally_selection
from fedtwin.sim.fast.layout import Records, Rules
from fedtwin.sim.series import sample
from fedtwin.twin.state import mean_cost, queue_after_selection, queue_at, sum_of_queues
from fedtwin.world.world import Draw, draw_round

NO_SCORES = "nobody has a score"


def score_of_policy(view: View, knobs: Knobs) -> float:
    """Stands for the policy's ``score``."""
    raise NotImplementedError


def score_of_oracle(view: View, true_cost: float, knobs: Knobs) -> float:
    """Stands for an oracle's ``score``."""
    raise NotImplementedError


def plan_of_power_rule(terms: Terms, gain: float, cpu_hz: float, samples: float) -> Plan:
    """Stands for the power rule."""
    raise NotImplementedError


def rate(rules: Rules, known: Records, view: View) -> float:
    """Stands for one of the two below."""
    raise NotImplementedError


def raw(rules: Rules, known: Records, view: View) -> float:
    """Stands for one of the two below it."""
    raise NotImplementedError


def raw_by_policy(rules: Rules, known: Records, view: View) -> float:  # noqa: ARG001
    return score_of_policy(view, rules.knobs)


def raw_by_oracle(rules: Rules, known: Records, view: View) -> float:
    draw = draw_of(rules, known, view.round)
    return score_of_oracle(view, plan_of_power_rule(rules.terms, draw.gain, draw.cpu_hz, known.samples).cost, rules.knobs)


def check_choice(devices: Records, rules: Rules, round_: int, chosen: int) -> None:
    """Stands for one of the two below: at the first question of a round."""
    raise NotImplementedError


def trust_choice(devices: Records, rules: Rules, round_: int, chosen: int) -> None:
    """Policies of fedtwin's own give numbers."""


def refuse_nan(devices: Records, rules: Rules, round_: int, chosen: int) -> None:
    """Nobody's score is a number, and not only for want of what a device has not told yet: ``Coordinator.choose``."""
    if rate(rules, devices[chosen], view_of(rules, devices[chosen], chosen, round_)) < math.inf:
        return
    for device in range(len(devices)):
        known = devices[device]
        if known.free:
            view = view_of(rules, known, device, round_)
            if not math.isnan(raw(rules, known, view)) or not math.isnan(raw(rules, known, as_if_told(view))):
                return
    raise FloatingPointError(NO_SCORES)


def rate_by_policy(rules: Rules, known: Records, view: View) -> float:  # noqa: ARG001
    return last_if_nan(score_of_policy(view, rules.knobs))


def rate_by_oracle(rules: Rules, known: Records, view: View) -> float:
    draw = draw_of(rules, known, view.round)
    plan = plan_of_power_rule(rules.terms, draw.gain, draw.cpu_hz, known.samples)
    return last_if_nan(score_of_oracle(view, plan.cost, rules.knobs))


def view_of(rules: Rules, known: Records, device: int, round_: int) -> View:
    return View(
        round_,
        device,
        known.samples,
        known.selections,
        known.observations,
        mean_cost(known.cost_sum, known.observations),
        queue_at(known.queue, known.queue_round, round_, rules.knobs.min_mean_samples),
        known.gain,
        known.compute_s,
    )


def draw_of(rules: Rules, known: Records, round_: int) -> Draw:
    return draw_round(known.stream, round_, known.path_gain, known.cpu_hz_mean, rules.std_hz, rules.floor_hz)


def total_queue_now(run: Records, rules: Rules) -> float:
    return sum_of_queues(run.queue_sum, run.queue_round_sum, rules.devices, run.round, rules.knobs.min_mean_samples)


def select(run: Records, known: Records, rules: Rules, round_: int) -> None:
    """A counted selection drains the device's virtual queue."""
    d_min = rules.knobs.min_mean_samples
    queue = queue_after_selection(queue_at(known.queue, known.queue_round, round_, d_min), known.samples, d_min)
    run.queue_sum = run.queue_sum + (queue - known.queue)
    run.queue_round_sum += (round_ + 1) - known.queue_round
    known.queue = queue
    known.queue_round = round_ + 1
    known.selections += 1


def observe(known: Records, cost: float) -> None:
    known.observations += 1
    known.cost_sum = known.cost_sum + cost


def hear_of_arrival(run: Records) -> None:
    if run.staleness >= 0:
        tally_arrival(run, run.round, run.staleness)


def charge(run: Records, curve: Records, rules: Rules, plan: Plan, cost: float, charged_s: float, total_queue: float) -> None:
    """A selection goes into the sums, and into the series where a point is reached."""
    time_ok = within(plan.compute_s + plan.upload_s, rules.terms.max_time_s)
    energy_ok = within(plan.compute_j + plan.upload_j, rules.terms.max_energy_j)
    tally_selection(run, run.round, cost, charged_s, plan.compute_j + plan.upload_j, time_ok, energy_ok)
    sample(run, curve, run.round, total_queue)


def write_row(
    run: Records, row: Records, rules: Rules, device: int, samples: float, draw: Draw, plan: Plan,
    cost: float, score: float, queue: float, total_queue: float,
) -> None:  # fmt: skip
    terms, spent = rules.terms, plan.feasible
    row.round, row.clock_s, row.arrived, row.staleness = run.round, run.clock_s, run.arrived, run.staleness
    row.device, row.samples, row.gain, row.cpu_hz = device, int(samples), draw.gain, draw.cpu_hz
    row.power_w, row.compute_s, row.upload_s = plan.power_w, plan.compute_s, plan.upload_s
    row.compute_j, row.upload_j, row.cost = plan.compute_j, plan.upload_j, cost
    row.score, row.queue, row.total_queue = score, queue, total_queue
    row.declined, row.reason = not spent, plan.reason
    row.time_ok = not spent or within(plan.compute_s + plan.upload_s, terms.max_time_s)
    row.energy_ok = not spent or within(plan.compute_j + plan.upload_j, terms.max_energy_j)
    run.rows += 1
