"""The synchronous run of ``fedtwin.sim.synchronous``, in steps that can be left and entered again between two rows."""

import numpy as np
from numpy.typing import NDArray

from fedtwin.formulas.cost import cost
from fedtwin.formulas.power import NOTHING_BINDS, Plan
from fedtwin.formulas.timeout import computed_until_j, sent_until_j
from fedtwin.records.summary import tally_decline, tally_drop
from fedtwin.sim.fast.choose import changed, choose, prefer_the_cheaper, scan
from fedtwin.sim.fast.layout import NOBODY, Records, Rules, State
from fedtwin.sim.fast.steps import (
    answer_of,
    charge,
    check_choice,
    draw_of,
    gain_age_s,
    gain_known,
    hear_of_decline,
    hear_of_link,
    observe,
    rate,
    select,
    terms_in,
    total_queue_now,
    view_of,
    write_row,
)
from fedtwin.sim.fast.tournament import build
from fedtwin.world.world import Draw


def begin(state: State, rules: Rules, places: NDArray[np.int32]) -> bool:  # noqa: ARG001
    """A synchronous run has no first dispatches."""
    if rules.indexed:
        build(state.nodes, state.order, state.fleet.devices, rules, 1)
    return True


def play(state: State, rules: Rules, pause_at: int) -> bool:
    """Rounds of M selections. True when the run is over, False where rows or answers are full or ``pause_at`` is reached."""
    run = state.run[0]
    while True:
        if run.closing:
            if not close_round(state, rules):
                return False
        elif not run.asking:
            if run.selections >= rules.rounds or run.round >= rules.rounds:
                return True
            if run.round >= pause_at:
                return False
            if rules.indexed and run.round >= run.look_again_at:
                prefer_the_cheaper(state.nodes, state.order, state.fleet, rules, run)
            run.round += 1
            run.asking = True
            run.answers = run.accepted = run.emitted = 0
        elif run.answers == len(state.answers):
            return False
        elif not ask(state, rules):
            run.asking = False
            run.closing = True
            settle_round(state, rules)


def ask(state: State, rules: Rules) -> bool:
    """One device answers; False when the round has all it wants, or nobody is left."""
    run, fleet = state.run[0], state.fleet
    if run.accepted == min(rules.channels, rules.rounds - run.selections):
        return False
    device = choose(state.nodes, state.order, fleet, rules, run) if rules.indexed else scan(fleet, rules, run, run.round)
    if device == NOBODY:
        return False
    if run.answers == 0:
        check_choice(fleet, rules, run, device)
    known = fleet.devices[device]
    view = view_of(rules, fleet, run, device, run.round)
    draw = draw_of(rules, fleet, device, run.round, run.clock_s)
    plan = answer_of(terms_in(rules, fleet, device), draw)
    answer = state.answers[run.answers]
    answer.device, answer.gain, answer.cpu_hz, answer.samples = device, draw.gain, draw.cpu_hz, draw.samples
    answer.score, answer.queue = rate(rules, fleet, run, view), view.queue
    answer.known_gain = gain_known(rules, fleet, run, device, run.round)
    answer.known_gain_age_s = gain_age_s(fleet, run, device)
    answer.total_queue = total_queue_now(run, rules)
    answer.power_w, answer.compute_s, answer.upload_s = plan.power_w, plan.compute_s, plan.upload_s
    answer.compute_j, answer.upload_j = plan.compute_j, plan.upload_j
    answer.reason, answer.feasible, answer.available = plan.reason, plan.feasible, draw.available
    run.answers += 1
    run.accepted += plan.feasible
    known.free = False
    if draw.available:
        hear_of_link(rules, known, fleet.heard[device], run.clock_s, draw)
    if not plan.feasible:
        hear_of_decline(rules, fleet, run.round, device)
    if rules.indexed:
        changed(state.nodes, state.order, fleet, rules, run, device, run.round)
    return True


def settle_round(state: State, rules: Rules) -> None:
    """The slowest of the accepted sets the pace of all, or the timeout; who is late stops there."""
    run = state.run[0]
    run.slowest_s = 0.0 if run.accepted > 0 else rules.terms.max_time_s
    for k in range(run.answers):
        answer = state.answers[k]
        if answer.feasible:
            run.slowest_s = max(run.slowest_s, answer.compute_s + answer.upload_s)
            if is_late(rules, answer):
                answer.compute_j = computed_until_j(rules.timeout_s, answer.compute_s, answer.compute_j)
                answer.upload_j = sent_until_j(rules.timeout_s, answer.compute_s, answer.power_w)
            heard = state.fleet.heard[answer.device]
            select(run, state.fleet.devices[answer.device], heard, rules, run.round, answer.samples)
            heard.version = run.version
    run.slowest_s = min(run.slowest_s, rules.timeout_s)


def is_late(rules: Rules, answer: Records) -> bool:
    """``fedtwin.formulas.timeout.is_late``."""
    return bool(answer.feasible and answer.compute_s + answer.upload_s > rules.timeout_s)


def close_round(state: State, rules: Rules) -> bool:
    """Costs are charged and learned, rows are written, devices are free again. False where the rows are full."""
    run, fleet, rows, keep = state.run[0], state.fleet, state.rows, len(state.rows) > 0
    while run.emitted < run.answers:
        if keep and run.rows == len(rows):
            return False
        answer = state.answers[run.emitted]
        known = fleet.devices[answer.device]
        plan = plan_in(answer)
        terms = terms_in(rules, fleet, answer.device)
        charged = cost(terms, run.slowest_s, answer.compute_j + answer.upload_j)
        late = is_late(rules, answer)
        if keep:
            rows[run.rows].dropped = late
            draw = Draw(answer.gain, answer.cpu_hz, answer.available, answer.samples)
            write_row(
                run, rows[run.rows], terms, answer.device, draw, plan, charged,
                answer.score, answer.queue, answer.total_queue, answer.known_gain, answer.known_gain_age_s,
            )  # fmt: skip
        if answer.feasible:
            charge(run, state.curve, terms, plan, charged, run.slowest_s, answer.total_queue)
            known.compute_s = answer.compute_s
            fleet.heard[answer.device].compute_at_s = run.clock_s if late else run.clock_s + run.slowest_s
            observe(
                rules, known, fleet.own, run.round, answer.device, charged, run.slowest_s, answer.compute_j + answer.upload_j
            )
            if late:
                tally_drop(run, answer.compute_j + answer.upload_j)
                fleet.heard[answer.device].trained -= answer.samples
            else:
                run.version += 1
        else:
            tally_decline(run)
        known.free = True
        if rules.indexed:
            changed(state.nodes, state.order, fleet, rules, run, answer.device, run.round + 1)
        run.emitted += 1
    run.clock_s = run.clock_s + run.slowest_s
    run.closing = False
    return True


def plan_in(answer: Records) -> Plan:
    return Plan(
        answer.power_w, 0.0, 0.0, answer.feasible, answer.reason, NOTHING_BINDS,
        answer.compute_s, answer.upload_s, answer.compute_j, answer.upload_j, 0.0,
    )  # fmt: skip
