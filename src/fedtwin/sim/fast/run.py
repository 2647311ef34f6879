"""Drives the compiled functions: a fraction of a second at a time, so that it can be interrupted, shown and saved."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedtwin.config import Config
from fedtwin.policies import Policy, policy_of, power_rule
from fedtwin.records import Tally
from fedtwin.sim.fast.compile import is_users, kernels
from fedtwin.sim.fast.layout import Records, State
from fedtwin.sim.fast.state import Start, new_start
from fedtwin.sim.fast.tables import to_arrow
from fedtwin.sim.fast.watch import Watch
from fedtwin.twin.state import sum_of_queues
from fedtwin.world.fleet import FleetColumns

INDEX_FROM = 400
FAILURES = (ArithmeticError, ValueError, IndexError)
FIRST_LOOKS, STRETCH_S, SAVE_EVERY_S = 300_000, 0.2, 5.0


class Sink:
    """Where rows go. ``part`` is told of every full part and of the last one, ``partial`` of one that still grows."""

    def start(self, table: pa.Table) -> None: ...

    def part(self, table: pa.Table) -> None: ...

    def partial(self, table: pa.Table) -> None: ...


@dataclass(frozen=True)
class Played:
    """What is left of a run when it is over."""

    tally: Tally
    clock_s: float
    rounds: int
    trained: NDArray[np.float64]
    total_queue: float
    curve: Records


def play(
    config: Config,
    fleet: FleetColumns,
    tie_ranks: NDArray[np.int64],
    *,
    checkpoints: Sequence[int] = (),
    rows_per_part: int = 0,
    sink: Sink | None = None,
    progress: Callable[[int], None] | None = None,
) -> Played:
    """The whole run; rows only where there is a sink for them."""
    start = prepare(config, fleet, tie_ranks, checkpoints=checkpoints, rows=rows_per_part if sink else 0)
    return finish(config, start, sink, progress)


def prepare(
    config: Config, fleet: FleetColumns, tie_ranks: NDArray[np.int64], *, checkpoints: Sequence[int] = (), rows: int = 0
) -> Start:
    policy = policy_of(config)
    indexed = len(fleet.samples) >= INDEX_FROM and isinstance(policy, Policy) and policy.lead is not None
    return new_start(config, fleet, tie_ranks, checkpoints, rows, indexed=indexed)


def finish(config: Config, start: Start, sink: Sink | None = None, progress: Callable[[int], None] | None = None) -> Played:
    state, rules, order = start.state, start.rules, start.order
    policy = policy_of(config)
    own = kernels(policy, config.policy.name, power_rule(config), config.run.mode)
    watch = Watch(config, policy, start, own) if is_users(policy) else None
    first_rows = []
    try:
        while not own.begin(state, rules, order):
            first_rows.append(_take(state))
    except FAILURES as error:
        raise (error if watch is None else watch.sentence_of(error)) from None
    if sink is not None and config.run.mode == "async":
        sink.start(pa.concat_tables([*first_rows, _take(state)]))
    run, stretch, saved_at = state.run, max(1, FIRST_LOOKS // len(state.devices)), time.monotonic()
    while True:
        begun, first_round = time.monotonic(), int(run["round"][0])
        try:
            pause_at = first_round + stretch
            if watch is not None:
                if not run["asking"][0] and not run["closing"][0]:
                    watch.look()
                pause_at = watch.pause_at(first_round + 1, pause_at)
            over = own.play(state, rules, pause_at)
            if progress is not None:
                progress(int(run["selections"][0]))
        except BaseException as error:
            if sink is not None:
                sink.partial(to_arrow(state.rows[: int(run["rows"][0])]))
            if watch is not None and isinstance(error, FAILURES):
                raise watch.sentence_of(error) from None
            raise
        if sink is not None and (over or run["rows"][0] == len(state.rows)):
            sink.part(_take(state))
            saved_at = time.monotonic()
        if over:
            return _played(config, state)
        if config.run.mode == "sync" and run["asking"][0] and run["answers"][0] == len(state.answers):
            state = state._replace(answers=np.concatenate([state.answers, np.zeros_like(state.answers)]))
        if sink is not None and time.monotonic() - saved_at > SAVE_EVERY_S:
            sink.partial(to_arrow(state.rows[: int(run["rows"][0])]))
            saved_at = time.monotonic()
        if int(run["round"][0]) - first_round >= stretch:
            wanted_s = STRETCH_S if watch is None else watch.stretch_s(STRETCH_S)
            stretch = max(1, int(stretch * min(4.0, wanted_s / max(time.monotonic() - begun, 1e-4))))


def _take(state: State) -> pa.Table:
    """The rows so far; their places are free again."""
    table = to_arrow(state.rows[: int(state.run["rows"][0])])
    state.run["rows"] = 0
    return table


def _played(config: Config, state: State) -> Played:
    run = state.run[0]
    rounds, d_min = int(run["round"]), config.objective.min_mean_samples
    names = ("cost_sum", "time_sum_s", "energy_sum_j", "selections", "declines", "staleness_sum", "arrivals")
    more = ("rounds_with_a_selection", "time_violations", "energy_violations")
    return Played(
        Tally(**{name: run[name].item() for name in names + more}),
        float(run["clock_s"]),
        rounds,
        state.devices["selections"] * state.devices["samples"],
        sum_of_queues(float(run["queue_sum"]), int(run["queue_round_sum"]), len(state.devices), rounds + 1, d_min),
        state.curve[: run["sampled"]],
    )
