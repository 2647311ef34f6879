"""The asynchronous run of ``fedtwin.sim.asynchronous``, in steps that can be left and entered again between two rows."""

import numpy as np
from numpy.typing import NDArray

from fedtwin.formulas.power import Plan
from fedtwin.records.summary import tally_decline
from fedtwin.sim.fast.choose import changed, choose, prefer_the_cheaper
from fedtwin.sim.fast.flights import drop_first, lift
from fedtwin.sim.fast.layout import NOBODY, Records, Rules, State
from fedtwin.sim.fast.steps import (
    charge,
    check_choice,
    draw_of,
    hear_of_arrival,
    observe,
    plan_of_power_rule,
    rate,
    select,
    total_queue_now,
    view_of,
    write_row,
)
from fedtwin.sim.fast.tournament import build


def begin(state: State, rules: Rules, places: NDArray[np.int32]) -> bool:
    """t = 0: M devices in a random order, as far as they accept. True when done, False when the rows are full."""
    run, devices, rows, keep = state.run[0], state.devices, state.rows, len(state.rows) > 0
    while run.flights < rules.channels and run.dispatched < len(devices):
        if keep and run.rows == len(rows):
            return False
        device = places[run.dispatched]
        known = devices[device]
        draw = draw_of(rules, known, 0)
        plan = plan_of_power_rule(rules.terms, draw.gain, draw.cpu_hz, known.samples)
        if keep:
            place = float(run.dispatched)
            write_row(run, rows[run.rows], rules, device, known.samples, draw, plan, plan.cost, place, 0.0, 0.0)
        if plan.feasible:
            known.gain = draw.gain
            depart(run, known, state.flights, device, plan, False)
        run.dispatched += 1
    if rules.indexed:
        build(state.nodes, state.order, devices, rules, 1)
    return True


def play(state: State, rules: Rules, pause_at: int) -> bool:
    """Rounds 1 … T. True when the run is over, False where the rows are full or round ``pause_at`` is reached."""
    run, devices, flights, nodes, order = state.run[0], state.devices, state.flights, state.nodes, state.order
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
                device = arrive(run, devices, flights, rules)
                if rules.indexed and device != NOBODY:
                    changed(nodes, order, devices, rules, run, device, run.round + 1)
                run.waiting = False
            if rules.indexed and run.round >= run.look_again_at:
                prefer_the_cheaper(nodes, order, devices, rules, run)
            run.round += 1
            run.asking = True
            while run.first_decliner != NOBODY:
                device = run.first_decliner
                devices[device].free = True
                run.first_decliner = devices[device].next_decliner
                if rules.indexed:
                    changed(nodes, order, devices, rules, run, device, run.round)
        device = choose(nodes, order, devices, rules, run)
        if device == NOBODY:
            run.asking = False
            run.waiting = True
            run.arrived = run.staleness = NOBODY
            continue
        if run.first_decliner == NOBODY:
            check_choice(devices, rules, run.round, device)
        known = devices[device]
        draw = draw_of(rules, known, run.round)
        plan = plan_of_power_rule(rules.terms, draw.gain, draw.cpu_hz, known.samples)
        total_queue = total_queue_now(run, rules)
        if keep:
            view = view_of(rules, known, device, run.round)
            score = rate(rules, known, view)
            write_row(run, rows[run.rows], rules, device, known.samples, draw, plan, plan.cost, score, view.queue, total_queue)
        hear_of_arrival(run)
        known.gain = draw.gain
        known.free = False
        if plan.feasible:
            charge(run, curve, rules, plan, plan.cost, plan.compute_s + plan.upload_s, total_queue)
            select(run, known, rules, run.round)
            if rules.learn_on_selection:
                observe(known, plan.cost)
            depart(run, known, flights, device, plan, True)
            run.asking = False
            run.waiting = run.flights == rules.channels
            run.arrived = run.staleness = NOBODY
        else:
            tally_decline(run)
            known.next_decliner = run.first_decliner
            run.first_decliner = device
        if rules.indexed:
            changed(nodes, order, devices, rules, run, device, run.round)


def depart(run: Records, known: Records, flights: Records, device: int, plan: Plan, counted: bool) -> None:
    """The device trains and uploads, with the model as it is now. The last place of ``flights`` is spare."""
    known.free = False
    known.compute_s = plan.compute_s
    entry = flights[len(flights) - 1]
    entry.at_s = run.clock_s + plan.compute_s + plan.upload_s
    entry.device, entry.cost, entry.version, entry.counted = device, plan.cost, run.version, counted
    lift(flights, len(flights) - 1, run.flights)
    run.flights += 1


def arrive(run: Records, devices: Records, flights: Records, rules: Rules) -> int:
    """The earliest upload is mixed in and its device is free; with nothing on its way the clock moves by T_max."""
    if run.flights == 0:
        run.clock_s = run.clock_s + rules.terms.max_time_s
        return NOBODY
    first = flights[0]
    device = int(first.device)
    known = devices[device]
    known.free = True
    run.clock_s, run.arrived, run.staleness = first.at_s, device, run.version - first.version
    if first.counted and not rules.learn_on_selection:
        observe(known, first.cost)
    drop_first(flights, run.flights)
    run.flights -= 1
    run.version += 1
    return device
