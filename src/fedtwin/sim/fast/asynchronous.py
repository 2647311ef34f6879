"""The asynchronous run of ``fedtwin.sim.asynchronous``, in steps that can be left and entered again between two rows."""

import math

import numpy as np
from numpy.typing import NDArray

from fedtwin.formulas.power import Plan
from fedtwin.records.summary import tally_decline
from fedtwin.sim.fast.choose import changed, choose, prefer_the_cheaper, scan
from fedtwin.sim.fast.flights import drop_first, lift
from fedtwin.sim.fast.layout import NOBODY, Fleet, Records, Rules, State
from fedtwin.sim.fast.steps import (
    answer_of,
    charge,
    check_choice,
    draw_of,
    gain_age_s,
    gain_known,
    hear_of_arrival,
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


def begin(state: State, rules: Rules, places: NDArray[np.int32]) -> bool:
    """t = 0: M devices in a random order, as far as they accept. True when done, False when the rows are full."""
    run, fleet, rows, keep = state.run[0], state.fleet, state.rows, len(state.rows) > 0
    while run.flights < rules.channels and run.dispatched < len(fleet.devices):
        if keep and run.rows == len(rows):
            return False
        device = places[run.dispatched]
        known = fleet.devices[device]
        draw, terms = draw_of(rules, fleet, device, 0, run.clock_s), terms_in(rules, fleet, device)
        plan = answer_of(terms, draw)
        if keep:
            place = float(run.dispatched)
            write_row(run, rows[run.rows], terms, device, draw, plan, plan.cost, place, 0.0, 0.0, math.nan, math.nan)
        if plan.feasible:
            hear_of_link(rules, known, fleet.heard[device], run.clock_s, draw)
            known.samples = draw.samples
            depart(rules, run, known, fleet.heard[device], state.flights, device, plan, False)
        run.dispatched += 1
    if rules.indexed:
        build(state.nodes, state.order, fleet.devices, rules, 1)
    return True


def play(state: State, rules: Rules, pause_at: int) -> bool:
    """Rounds 1 … T. True when the run is over, False where the rows are full or round ``pause_at`` is reached."""
    run, fleet, flights, nodes, order = state.run[0], state.fleet, state.flights, state.nodes, state.order
    devices = fleet.devices
    curve, rows, keep = state.curve, state.rows, len(state.rows) > 0
    while True:
        if keep and run.rows == len(rows):
            return False
        if not run.asking:
            if run.round >= rules.rounds:
                return True
            if run.waiting:
                if run.round >= pause_at:
                    return False
                device = arrive(run, fleet, flights, rules)
                if rules.indexed and device != NOBODY:
                    changed(nodes, order, fleet, rules, run, device, run.round + 1)
                run.waiting = False
            if rules.indexed and run.round >= run.look_again_at:
                prefer_the_cheaper(nodes, order, fleet, rules, run)
            run.round += 1
            run.asking = True
            while run.first_decliner != NOBODY:
                device = run.first_decliner
                devices[device].free = True
                run.first_decliner = devices[device].next_decliner
                if rules.indexed:
                    changed(nodes, order, fleet, rules, run, device, run.round)
        device = choose(nodes, order, fleet, rules, run) if rules.indexed else scan(fleet, rules, run, run.round)
        if device == NOBODY:
            run.asking = False
            run.waiting = True
            run.arrived = run.staleness = NOBODY
            continue
        if run.first_decliner == NOBODY:
            check_choice(fleet, rules, run, device)
        known = devices[device]
        draw, terms = draw_of(rules, fleet, device, run.round, run.clock_s), terms_in(rules, fleet, device)
        plan = answer_of(terms, draw)
        total_queue = total_queue_now(run, rules)
        if keep:
            view = view_of(rules, fleet, run, device, run.round)
            score = rate(rules, fleet, run, view)
            write_row(
                run, rows[run.rows], terms, device, draw, plan, plan.cost, score, view.queue, total_queue,
                gain_known(rules, fleet, run, device, run.round), gain_age_s(fleet, run, device),
            )  # fmt: skip
        hear_of_arrival(run)
        if draw.available:
            hear_of_link(rules, known, fleet.heard[device], run.clock_s, draw)
        known.free = False
        if plan.feasible:
            charge(run, curve, terms, plan, plan.cost, plan.compute_s + plan.upload_s, total_queue)
            select(run, known, fleet.heard[device], rules, run.round, draw.samples)
            if rules.learn_on_selection:
                time_s, energy_j = plan.compute_s + plan.upload_s, plan.compute_j + plan.upload_j
                observe(rules, known, fleet.own, run.round, device, plan.cost, time_s, energy_j)
            depart(rules, run, known, fleet.heard[device], flights, device, plan, True)
            run.asking = False
            run.waiting = run.flights == rules.channels
            run.arrived = run.staleness = NOBODY
        else:
            tally_decline(run)
            hear_of_decline(rules, fleet, run.round, device)
            known.next_decliner = run.first_decliner
            run.first_decliner = device
        if rules.indexed:
            changed(nodes, order, fleet, rules, run, device, run.round)


def depart(
    rules: Rules, run: Records, known: Records, heard: Records, flights: Records, device: int, plan: Plan, counted: bool
) -> None:
    """The device trains and uploads, with the model as it is now. The last place of ``flights`` is spare."""
    known.free = False
    known.compute_s = plan.compute_s
    if rules.noted:
        heard.compute_at_s, heard.version = run.clock_s, run.version
        heard.task_s, heard.task_j = plan.compute_s + plan.upload_s, plan.compute_j + plan.upload_j
    entry = flights[len(flights) - 1]
    entry.at_s = run.clock_s + plan.compute_s + plan.upload_s
    entry.device, entry.cost, entry.version, entry.counted = device, plan.cost, run.version, counted
    lift(flights, len(flights) - 1, run.flights)
    run.flights += 1


def arrive(run: Records, fleet: Fleet, flights: Records, rules: Rules) -> int:
    """The earliest upload is mixed in and its device is free; with nothing on its way the clock moves by the run's T_max."""
    if run.flights == 0:
        run.clock_s = run.clock_s + rules.terms.max_time_s
        return NOBODY
    first = flights[0]
    device = int(first.device)
    heard = fleet.heard[device]
    fleet.devices[device].free = True
    run.clock_s, run.arrived, run.staleness = first.at_s, device, run.version - first.version
    heard.compute_at_s = run.clock_s
    if first.counted and not rules.learn_on_selection:
        observe(rules, fleet.devices[device], fleet.own, run.round, device, first.cost, heard.task_s, heard.task_j)
    drop_first(flights, run.flights)
    run.flights -= 1
    run.version += 1
    return device
