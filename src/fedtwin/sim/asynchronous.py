"""The asynchronous run: every arrival frees a channel, and one idle device takes it (Section III-B, Algorithm 1)."""

import heapq
from collections.abc import Callable
from typing import NamedTuple

from fedtwin.coordinator import Decision
from fedtwin.draws import Purpose, ranks
from fedtwin.formulas.power import Plan
from fedtwin.records import Row
from fedtwin.sim.engine import Asked, Emit, Engine, Pause


class Arrival(NamedTuple):
    """An upload on its way. Arrivals are ordered by (time, device)."""

    at_s: float
    device: int
    plan: Plan


class News(NamedTuple):
    """The upload that opened a round: whose, how stale, its training loss. A round that fills an empty channel has none."""

    arrived: int | None
    staleness: int | None
    train_loss: float | None


NOTHING = News(None, None, None)


def run(engine: Engine, emit: Emit, pause: Pause, on_start: Callable[[list[Row]], None] | None = None) -> None:
    """Rounds 1 … T. A round in which every idle device declines passes, and its channel waits for the next arrival."""
    in_flight, first_rows = _dispatch_the_first(engine)
    if on_start is not None:
        on_start(first_rows)
    go_on(engine, emit, pause, in_flight)


def go_on(engine: Engine, emit: Emit, pause: Pause, in_flight: list[Arrival], *, waiting: bool = True) -> None:
    """From between any two rounds to round T; ``waiting``: no round is opened before the next upload arrives."""
    rounds, channels = engine.config.run.rounds, engine.config.fleet.channels
    while engine.coordinator.round < rounds:
        news = NOTHING
        if waiting:
            pause()
            news = _next_arrival(engine, in_flight)
        waiting = True
        while len(in_flight) < channels and engine.coordinator.round < rounds:
            taken = _one_round(engine, emit, news)
            if taken is None:
                break
            heapq.heappush(in_flight, taken)
            news = NOTHING


def drain(engine: Engine, in_flight: list[Arrival], most: int) -> None:
    """Uploads arrive until no more than ``most`` are on their way."""
    while len(in_flight) > most:
        _next_arrival(engine, in_flight)


def _next_arrival(engine: Engine, in_flight: list[Arrival]) -> News:
    """The earliest upload is mixed in; with nothing on its way the clock moves by T_max."""
    if not in_flight:
        engine.clock_s += engine.world.terms.max_time_s
        return NOTHING
    engine.clock_s, device, plan = heapq.heappop(in_flight)
    return News(device, *engine.report(device, plan.cost, plan.compute_s + plan.upload_s, plan))


def _dispatch_the_first(engine: Engine) -> tuple[list[Arrival], list[Row]]:
    """t = 0: M devices at random among those that accept, not counted in Γ, Q or the objective."""
    places = ranks(engine.config.run.seed, Purpose.START, len(engine.world.fleet)).tolist()
    in_flight: list[Arrival] = []
    rows = []
    for device in sorted(range(len(places)), key=places.__getitem__):
        if len(in_flight) == engine.config.fleet.channels:
            break
        draw, plan = engine.ask(device, 0)
        rows.append(engine.row(Asked(Decision(0, device, float(places[device]), 0.0), None, 0.0, draw, plan), plan.cost))
        if plan.feasible:
            engine.accept(device, draw, plan, counted=False)
            heapq.heappush(in_flight, _arrival(engine, device, plan))
    return in_flight, rows


def _one_round(engine: Engine, emit: Emit, news: News) -> Arrival | None:
    engine.coordinator.open_round()
    while (asked := engine.ask_the_best()) is not None:
        plan = asked.plan
        emit(engine.row(asked, plan.cost, *news), plan.compute_s + plan.upload_s)
        if plan.feasible:
            engine.accept(asked.decision.device, asked.draw, plan)
            return _arrival(engine, asked.decision.device, plan)
    return None


def _arrival(engine: Engine, device: int, plan: Plan) -> Arrival:
    return Arrival(engine.clock_s + plan.compute_s + plan.upload_s, device, plan)
