"""The asynchronous run of ``fedtwin.sim.asynchronous``, in steps that can be left and entered again between two rows."""

from fedtwin.power import Plan
from fedtwin.sim.fast.flights import drop_first, lift
from fedtwin.sim.fast.choose import choose, set_free
from fedtwin.sim.fast.layout import NOBODY, Rules, State
from fedtwin.sim.fast.steps import (
    draw_of,
    observe,
    plan_of_power_rule,
    rate,
    sample,
    select,
    tally_arrival,
    tally_decline,
    tally_selection,
    total_queue_now,
    view_of,
    write_row,
)


def start(state: State, rules: Rules, places: object) -> bool:
    """t = 0: M devices in a random order, as far as they accept. True when done, False when the rows are full."""
    run, devices = state.run[0], state.devices
    while run.flights < rules.channels and run.dispatched < len(devices):
        if len(state.rows.round) > 0 and run.rows == len(state.rows.round):
            return False
        place = run.dispatched
        device = places[place]  # type: ignore[index]
        known = devices[device]
        draw = draw_of(rules, known, 0)
        plan = plan_of_power_rule(rules.terms, draw.gain, draw.cpu_hz, known.samples)
        if len(state.rows.round) > 0:
            write_row(
                run, state.rows, rules, run.clock_s, device, known.samples, draw, plan, plan.cost, float(place), 0.0, 0.0
            )
        if plan.feasible:
            known.gain = draw.gain
            depart(state, rules, device, plan, False)
        run.dispatched += 1
    return True


def play(state: State, rules: Rules, pause_at: int) -> bool:
    """Rounds 1 … T. True when the run is over, False where the rows are full or round ``pause_at`` is reached."""
    run, devices, keep = state.run[0], state.devices, len(state.rows.round) > 0
    while True:
        if keep and run.rows == len(state.rows.round):
            return False
        if not run.asking:
            if run.round >= rules.rounds:
                return True
            if run.waiting:
                if run.round >= pause_at:
                    return False
                arrive(state, rules)
                run.waiting = False
            open_round(state, rules)
        device = choose(state, rules, run.round)
        if device == NOBODY:
            run.asking = False
            run.waiting = True
            run.arrived = run.staleness = NOBODY
            continue
        known = devices[device]
        view = view_of(rules, devices, device, run.round)
        draw = draw_of(rules, known, run.round)
        plan = plan_of_power_rule(rules.terms, draw.gain, draw.cpu_hz, known.samples)
        total_queue = total_queue_now(run, devices, rules)
        if keep:
            score = rate(rules, devices, view)
            write_row(
                run, state.rows, rules, run.clock_s, device, known.samples, draw, plan, plan.cost, score, view.queue, total_queue
            )
        tally_arrival(run)
        known.gain = draw.gain
        if not plan.feasible:
            tally_decline(run)
            known.next_decliner = run.first_decliner
            run.first_decliner = device
            set_free(state, rules, device, False, run.round)
            continue
        tally_selection(run, rules, plan, plan.cost, plan.compute_s + plan.upload_s)
        sample(run, state.curve, total_queue)
        select(run, known, rules, run.round)
        if rules.learn_on_selection:
            observe(known, plan.cost)
        depart(state, rules, device, plan, True)
        run.asking = False
        run.waiting = run.flights == rules.channels
        run.arrived = run.staleness = NOBODY


def open_round(state: State, rules: Rules) -> None:
    """Every queue has grown by D_min, and who declined in the round before may be asked again."""
    run = state.run[0]
    run.round += 1
    run.asking = True
    while run.first_decliner != NOBODY:
        device = run.first_decliner
        run.first_decliner = state.devices[device].next_decliner
        set_free(state, rules, device, True, run.round)


def depart(state: State, rules: Rules, device: int, plan: Plan, counted: bool) -> None:
    """The device trains and uploads, with the model as it is now."""
    run, last = state.run[0], len(state.flights) - 1
    state.devices[device].compute_s = plan.compute_s
    entry = state.flights[last]
    entry.at_s = run.clock_s + plan.compute_s + plan.upload_s
    entry.device = device
    entry.cost = plan.cost
    entry.version = run.version
    entry.counted = counted
    lift(state.flights, last, run.flights)
    run.flights += 1
    set_free(state, rules, device, False, max(run.round, 1))


def arrive(state: State, rules: Rules) -> None:
    """The earliest upload is mixed in, and its device is free; with nothing on its way the clock moves by T_max."""
    run = state.run[0]
    if run.flights == 0:
        run.clock_s = run.clock_s + rules.terms.max_time_s
        return
    first = state.flights[0]
    device = first.device
    run.clock_s = first.at_s
    run.arrived = device
    run.staleness = run.version - first.version
    if first.counted and not rules.learn_on_selection:
        observe(state.devices[device], first.cost)
    drop_first(state.flights, run.flights)
    run.flights -= 1
    run.version += 1
    set_free(state, rules, device, True, run.round + 1)
