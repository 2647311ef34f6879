"""What the asynchronous and the synchronous run do alike: look at a device, rate it, ask it, write down what it answered."""

import math
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fedtwin.formulas.cost import within
from fedtwin.formulas.power import Plan, no_answer
from fedtwin.formulas.terms import Terms, own_terms
from fedtwin.policies.base import Knobs, News, Prediction, View, as_if_told, last_if_nan
from fedtwin.prediction import prediction_in
from fedtwin.records.summary import tally_arrival, tally_selection
from fedtwin.sim.fast.layout import Fleet, Records, Rules
from fedtwin.sim.series import sample
from fedtwin.twin.state import mean_cost, mean_heard, queue_after_selection, queue_at, sum_of_queues
from fedtwin.world.parts import (
    LEAST_CPU_HZ,
    LEAST_GAIN,
    MOST_CPU_HZ,
    MOST_GAIN,
    Moment,
    Processor,
    Sensor,
    is_number_of_samples,
)
from fedtwin.world.world import Draw

NO_SCORES = "nobody has a score"
NO_DRAW = "a part of the world gives a number that is none of its kind"

# Stand-ins: what a policy, a power rule and a world bring takes their places when the engine is compiled


def score_of_policy(view: View, knobs: Knobs) -> float:
    """The policy's ``score``."""
    raise NotImplementedError


def score_of_oracle(view: View, true_cost: float, knobs: Knobs) -> float:
    """An oracle's ``score``."""
    raise NotImplementedError


def observe_of_policy(state: Any, news: News, knobs: Knobs) -> Any:
    """The policy's ``observe``."""
    raise NotImplementedError


def plan_of_power_rule(terms: Terms, gain: float, cpu_hz: float, samples: float) -> Plan:
    """The power rule."""
    raise NotImplementedError


def gain_of_channel(at: Moment, path_gain: float, settings: Any) -> float:
    """The world's channel."""
    raise NotImplementedError


def cpu_hz_of_load(at: Moment, processor: Processor, settings: Any) -> float:
    """The world's load."""
    raise NotImplementedError


def answers(at: Moment, settings: Any) -> bool:
    """The world's availability."""
    raise NotImplementedError


def samples_of_sensing(at: Moment, sensor: Sensor, settings: Any) -> float:
    """The world's sensing."""
    raise NotImplementedError


def raw(rules: Rules, fleet: Fleet, run: Records, view: View) -> float:
    """``raw_by_policy`` or ``raw_by_oracle``."""
    raise NotImplementedError


def check_choice(fleet: Fleet, rules: Rules, run: Records, chosen: int) -> None:
    """``trust_choice`` or ``refuse_nan``: at the first question of a round."""
    raise NotImplementedError


def checked(draw: Draw) -> Draw:
    """``trust_draw`` or ``refuse_draw``."""
    raise NotImplementedError


def view_of(rules: Rules, fleet: Fleet, run: Records, device: int, round_: int) -> View:
    """``view_of_little`` or ``full_view``."""
    raise NotImplementedError


def gain_known(rules: Rules, fleet: Fleet, run: Records, device: int, round_: int) -> float:
    """What the twin believes of the link: one of the three below."""
    raise NotImplementedError


def gain_age_s(fleet: Fleet, run: Records, device: int) -> float:
    """How old that is: ``age_of_heard`` or ``age_of_this_moment``."""
    raise NotImplementedError


def prediction_of(rules: Rules, fleet: Fleet, device: int, gain: float) -> Any:
    """``predicted``, or nothing for a policy that does not ask."""
    raise NotImplementedError


def own_state(own: NDArray[Any], device: int) -> Any:
    """The policy's own state of a device, or nothing."""
    raise NotImplementedError


def hear(rules: Rules, own: NDArray[Any], device: int, news: News) -> None:
    """The policy observes something, or has no state that could change."""
    raise NotImplementedError


def knobs_in(rules: Rules) -> Knobs:
    """The knobs, with the policy's settings by their names."""
    raise NotImplementedError


def channel_settings_in(rules: Rules) -> Any:
    """The channel's settings by their names, or nothing."""
    raise NotImplementedError


def load_settings_in(rules: Rules) -> Any:
    """The load's."""
    raise NotImplementedError


def availability_settings_in(rules: Rules) -> Any:
    """The availability's."""
    raise NotImplementedError


def sensing_settings_in(rules: Rules) -> Any:
    """The sensing's."""
    raise NotImplementedError


# What takes their places where nothing is declared


def no_prediction(rules: Rules, fleet: Fleet, device: int, gain: float) -> Any:  # noqa: ARG001
    return ()


def still_no_prediction(prediction: Any) -> Any:
    return prediction


def no_state(own: NDArray[Any], device: int) -> Any:  # noqa: ARG001
    return ()


def nobody_hears(rules: Rules, own: NDArray[Any], device: int, news: News) -> None:
    pass


def plain_knobs(rules: Rules) -> Knobs:
    return rules.knobs


def no_settings(rules: Rules) -> Any:  # noqa: ARG001
    return ()


# The world


def draw_of(rules: Rules, fleet: Fleet, device: int, round_: int, clock_s: float) -> Draw:
    place = fleet.places[device]
    processor = Processor(place.cpu_hz_mean, rules.std_hz, rules.floor_hz)
    at_load = Moment(place.load_stream, device, round_, clock_s)
    at_availability = Moment(place.availability_stream, device, round_, clock_s)
    return checked(
        Draw(
            true_gain(rules, place, device, round_, clock_s),
            cpu_hz_of_load(at_load, processor, load_settings_in(rules)),
            answers(at_availability, availability_settings_in(rules)),
            samples_now(rules, fleet, device, round_, clock_s),
        )
    )


def samples_now(rules: Rules, fleet: Fleet, device: int, round_: int, clock_s: float) -> Any:
    """D_n(t); where it never changes, it is what the twin knows."""
    if not rules.senses:
        return fleet.devices[device].samples
    sensor = fleet.sensors[device]
    at = Moment(sensor.stream, device, round_, clock_s)
    return float(samples_of_sensing(at, Sensor(sensor.mean, sensor.spread), sensing_settings_in(rules)))


def terms_in(rules: Rules, fleet: Fleet, device: int) -> Terms:
    """Those of the device."""
    return own_terms(rules.terms, fleet.terms[device]) if rules.own else rules.terms


def true_gain(rules: Rules, place: Records, device: int, round_: int, clock_s: float) -> float:
    at = Moment(place.channel_stream, device, round_, clock_s)
    return gain_of_channel(at, place.path_gain, channel_settings_in(rules))


def trust_draw(draw: Draw) -> Draw:
    """Parts of fedtwin's own keep their promise."""
    return draw


def refuse_draw(draw: Draw) -> Draw:
    if not LEAST_GAIN <= draw.gain <= MOST_GAIN or not LEAST_CPU_HZ <= draw.cpu_hz <= MOST_CPU_HZ:
        raise FloatingPointError(NO_DRAW)
    if not is_number_of_samples(draw.samples):
        raise FloatingPointError(NO_DRAW)
    return draw


def answer_of(terms: Terms, draw: Draw) -> Plan:
    """``answer_always`` or ``answer_if_available``."""
    raise NotImplementedError


def answer_always(terms: Terms, draw: Draw) -> Plan:
    return plan_of_power_rule(terms, draw.gain, draw.cpu_hz, draw.samples)


def answer_if_available(terms: Terms, draw: Draw) -> Plan:
    if not draw.available:
        return no_answer()
    return plan_of_power_rule(terms, draw.gain, draw.cpu_hz, draw.samples)


# The policy


def raw_by_policy(rules: Rules, fleet: Fleet, run: Records, view: View) -> float:  # noqa: ARG001
    return score_of_policy(view, knobs_in(rules))


def raw_by_oracle(rules: Rules, fleet: Fleet, run: Records, view: View) -> float:
    draw = draw_of(rules, fleet, view.device, view.round, run.clock_s)
    return score_of_oracle(view, answer_of(terms_in(rules, fleet, view.device), draw).cost, knobs_in(rules))


def rate(rules: Rules, fleet: Fleet, run: Records, view: View) -> float:
    return last_if_nan(raw(rules, fleet, run, view))


def trust_choice(fleet: Fleet, rules: Rules, run: Records, chosen: int) -> None:
    """Policies of fedtwin's own give numbers."""


def refuse_nan(fleet: Fleet, rules: Rules, run: Records, chosen: int) -> None:
    """Nobody's score is a number, and not only for want of what a device has not told yet: ``Coordinator.choose``."""
    if rate(rules, fleet, run, view_of(rules, fleet, run, chosen, run.round)) < math.inf:
        return
    for device in range(len(fleet.devices)):
        if fleet.devices[device].free:
            view = view_of(rules, fleet, run, device, run.round)
            if not math.isnan(raw(rules, fleet, run, view)) or not math.isnan(raw(rules, fleet, run, as_if_told(view))):
                return
    raise FloatingPointError(NO_SCORES)


class PlainView(NamedTuple):
    """The part of a ``View`` that changes only with the device's own selections."""

    round: int
    device: int
    samples: float
    selections: int
    observations: int
    mean_cost: float
    queue: float


def plain_view(rules: Rules, known: Records, device: int, round_: int) -> Any:
    """For a policy that looks at nothing that changes by itself."""
    return PlainView(
        round_,
        device,
        known.samples,
        known.selections,
        known.observations,
        mean_cost(known.cost_sum, known.observations),
        queue_at(known.queue, known.queue_round, round_, rules.knobs.min_mean_samples),
    )


def view_of_little(rules: Rules, fleet: Fleet, run: Records, device: int, round_: int) -> Any:  # noqa: ARG001
    return plain_view(rules, fleet.devices[device], device, round_)


def nothing_to_tell(view: Any) -> Any:
    return view


def full_view(rules: Rules, fleet: Fleet, run: Records, device: int, round_: int) -> View:
    known, heard = fleet.devices[device], fleet.heard[device]
    gain = gain_known(rules, fleet, run, device, round_)
    return View(
        round_,
        device,
        known.samples,
        known.selections,
        known.observations,
        mean_cost(known.cost_sum, known.observations),
        queue_at(known.queue, known.queue_round, round_, rules.knobs.min_mean_samples),
        gain,
        known.compute_s,
        gain_age_s(fleet, run, device),
        run.clock_s - heard.compute_at_s,
        run.version - heard.version,
        math.nan,
        prediction_of(rules, fleet, device, gain),
        own_state(fleet.own, device),
    )


def gain_last_heard(rules: Rules, fleet: Fleet, run: Records, device: int, round_: int) -> float:  # noqa: ARG001
    return float(fleet.devices[device].gain)


def gain_of_this_moment(rules: Rules, fleet: Fleet, run: Records, device: int, round_: int) -> float:
    gain = true_gain(rules, fleet.places[device], device, round_, run.clock_s)
    return checked(Draw(gain, LEAST_CPU_HZ, True, fleet.devices[device].samples)).gain


def mean_of_heard_gains(rules: Rules, fleet: Fleet, run: Records, device: int, round_: int) -> float:  # noqa: ARG001
    return mean_heard(fleet.heard[device].gain_sum, fleet.heard[device].gains)


def age_of_heard(fleet: Fleet, run: Records, device: int) -> float:
    return float(run.clock_s - fleet.heard[device].gain_at_s)


def age_of_this_moment(fleet: Fleet, run: Records, device: int) -> float:  # noqa: ARG001
    return 0.0


def predicted(rules: Rules, fleet: Fleet, device: int, gain: float) -> Prediction:
    """``fedtwin.prediction.predict``."""
    cpu_hz = mean_heard(fleet.heard[device].cpu_hz_sum, fleet.heard[device].gains)
    if math.isnan(gain) or math.isnan(cpu_hz):
        return Prediction(math.nan, math.nan, math.nan, False, False)
    terms = terms_in(rules, fleet, device)
    plan = plan_of_power_rule(terms, gain, cpu_hz, fleet.devices[device].samples)
    by_its_cpu = plan_of_power_rule(terms, gain, cpu_hz, 0.0).feasible if not plan.feasible else False
    return prediction_in(plan, by_its_cpu)


def told_anyway(prediction: Prediction) -> Prediction:
    return Prediction(0.5, 0.5, 0.5, True, False) if math.isnan(prediction.cost) else prediction


# What is learned


def hear_of_link(rules: Rules, known: Records, heard: Records, clock_s: float, draw: Draw) -> None:
    """The device answered: its link and its CPU are known."""
    known.gain = draw.gain
    if rules.noted:
        heard.gain_at_s = clock_s
        heard.gain_sum = heard.gain_sum + draw.gain
        heard.gains += 1
        heard.cpu_hz_sum = heard.cpu_hz_sum + draw.cpu_hz


def observe(
    rules: Rules, known: Records, own: NDArray[Any], round_: int, device: int, cost: float, time_s: float, energy_j: float
) -> None:
    known.observations += 1
    known.cost_sum = known.cost_sum + cost
    hear(rules, own, device, News(round_, cost, time_s, energy_j, math.nan, False))


def hear_of_decline(rules: Rules, fleet: Fleet, round_: int, device: int) -> None:
    hear(rules, fleet.own, device, News(round_, math.nan, math.nan, math.nan, math.nan, True))


def total_queue_now(run: Records, rules: Rules) -> float:
    return sum_of_queues(run.queue_sum, run.queue_round_sum, rules.devices, run.round, rules.knobs.min_mean_samples)


def select(run: Records, known: Records, heard: Records, rules: Rules, round_: int, samples: float) -> None:
    """A counted selection drains the device's virtual queue."""
    d_min = rules.knobs.min_mean_samples
    queue = queue_after_selection(queue_at(known.queue, known.queue_round, round_, d_min), samples, d_min)
    known.samples = samples
    heard.trained = heard.trained + samples
    run.queue_sum = run.queue_sum + (queue - known.queue)
    run.queue_round_sum += (round_ + 1) - known.queue_round
    known.queue = queue
    known.queue_round = round_ + 1
    known.selections += 1


def hear_of_arrival(run: Records) -> None:
    if run.staleness >= 0:
        tally_arrival(run, run.round, run.staleness)


def charge(run: Records, curve: Records, terms: Terms, plan: Plan, cost: float, charged_s: float, total_queue: float) -> None:
    """A selection goes into the sums, and into the series where a point is reached."""
    time_ok = within(plan.compute_s + plan.upload_s, terms.max_time_s)
    energy_ok = within(plan.compute_j + plan.upload_j, terms.max_energy_j)
    tally_selection(run, run.round, cost, charged_s, plan.compute_j + plan.upload_j, time_ok, energy_ok)
    sample(run, curve, run.round, total_queue)


def write_row(
    run: Records, row: Records, terms: Terms, device: int, draw: Draw, plan: Plan,
    cost: float, score: float, queue: float, total_queue: float, known_gain: float, known_gain_age_s: float,
) -> None:  # fmt: skip
    spent = plan.feasible
    row.round, row.clock_s, row.arrived, row.staleness = run.round, run.clock_s, run.arrived, run.staleness
    row.device, row.samples, row.gain, row.cpu_hz = device, int(draw.samples), draw.gain, draw.cpu_hz
    row.power_w, row.compute_s, row.upload_s = plan.power_w, plan.compute_s, plan.upload_s
    row.compute_j, row.upload_j, row.cost = plan.compute_j, plan.upload_j, cost
    row.score, row.queue, row.total_queue = score, queue, total_queue
    row.declined, row.reason = not spent, plan.reason
    row.time_ok = not spent or within(plan.compute_s + plan.upload_s, terms.max_time_s)
    row.energy_ok = not spent or within(plan.compute_j + plan.upload_j, terms.max_energy_j)
    row.known_gain, row.known_gain_age_s = known_gain, known_gain_age_s
    run.rows += 1
