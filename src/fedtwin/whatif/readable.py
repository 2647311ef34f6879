"""One future by the readable engine: the coordinator itself, from where it stands."""

from collections import Counter

import numpy as np

from fedtwin.formulas.power import NONE, NOTHING_BINDS, Plan
from fedtwin.records import Row, Tally
from fedtwin.sim import asynchronous, synchronous
from fedtwin.sim.engine import Engine
from fedtwin.twin import queue_at
from fedtwin.whatif.answer import Played
from fedtwin.whatif.fork import Flight, Fork
from fedtwin.whatif.points import Points, played
from fedtwin.whatif.worlds import GivenWorld, OneWorld, in_world


def play_readable(fork: Fork, one: OneWorld, points: Points) -> Played:
    fork = in_world(fork, one)
    engine = Engine(fork.config, world=GivenWorld(one), tie_ranks=list(fork.ranks))
    engine.coordinator.twin, engine.clock_s = fork.twin, fork.clock_s
    engine.coordinator.go_on(fork.round, fork.states)
    tally, trained, noted = Tally(selections=fork.selections), Counter[int](), list[tuple[float, ...]]()

    def emit(row: Row, charged_s: float) -> None:
        tally.add(row, charged_s)
        if not row.declined and not row.dropped:
            trained[row.device] += row.samples

    def note() -> None:
        noted.append((engine.clock_s, tally.cost_sum, float(tally.selections), _total_queue(engine, fork)))

    def pause() -> None:
        while len(noted) < len(points) - 1 and engine.coordinator.round >= points[len(noted)]:
            note()

    if fork.sync:
        synchronous.run(engine, emit, pause, fork.selections)
    else:
        in_flight = [asynchronous.Arrival(flight.at_s, flight.device, _plan(flight)) for flight in fork.flights]
        asynchronous.drain(engine, in_flight, fork.config.fleet.channels - (not fork.waiting))
        asynchronous.go_on(engine, emit, pause, in_flight, waiting=fork.waiting)
    while len(noted) < len(points):
        note()
    samples = np.array([float(trained[device]) for device in range(fork.devices)])
    return played(fork, np.array(noted), tally.time_sum_s, tally.energy_sum_j, samples, engine.coordinator.round)


def _total_queue(engine: Engine, fork: Fork) -> float:
    """After the last round, of all who are not lost."""
    coordinator = engine.coordinator
    total, twin = coordinator.total_queue_at_the_end(), coordinator.twin
    for device in fork.lost:
        known = twin.devices[device]
        total -= queue_at(known.queue, known.queue_round, coordinator.round + 1, twin.min_mean_samples)
    return total


def _plan(flight: Flight) -> Plan:
    """What is to be learned of a task under way."""
    return Plan(0.0, 0.0, 0.0, True, NONE, NOTHING_BINDS, *flight[2:])
