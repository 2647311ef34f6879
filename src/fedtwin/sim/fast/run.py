"""Drives the compiled functions: a fraction of a second at a time, so that it can be interrupted, shown and saved."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtwin.config import Config
from fedtwin.policies import policy_of
from fedtwin.records import Tally
from fedtwin.sim.fast.compile import Kernels, exchanged_in, is_users, kernels, looks_at_little
from fedtwin.sim.fast.layout import Records, Rules, State
from fedtwin.sim.fast.state import Start, new_start
from fedtwin.sim.fast.watch import Watch
from fedtwin.sim.series import Point, Series, series_of
from fedtwin.twin.state import sum_of_queues
from fedtwin.world.fleet import FleetColumns

INDEX_FROM = 400
FAILURES = (ArithmeticError, ValueError, IndexError)
FIRST_LOOKS, STRETCH_S, SAVE_EVERY_S = 300_000, 0.2, 5.0


class Sink:
    """Where rows go, which are in their places only during a call.

    ``fresh`` is told of every row once, ``part`` of every full part and of the last one, ``partial`` of one that still grows.
    """

    def start(self, rows: Records) -> None: ...

    def part(self, rows: Records) -> None: ...

    def partial(self, rows: Records) -> None: ...

    def fresh(self, rows: Records) -> None: ...


@dataclass(frozen=True)
class Played:
    """What is left of a run when it is over."""

    tally: Tally
    clock_s: float
    rounds: int
    trained: NDArray[np.float64]
    total_queue: float
    series: Series


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
    indexed = len(fleet.samples) >= INDEX_FROM and policy.lead is not None
    noted = rows > 0 or not looks_at_little(policy)
    return new_start(config, fleet, tie_ranks, checkpoints, rows, indexed=indexed, noted=noted)


def finish(config: Config, start: Start, sink: Sink | None = None, progress: Callable[[int], None] | None = None) -> Played:
    state, rules, order = start.state, start.rules, start.order
    exchanged = exchanged_in(config)
    own = kernels(exchanged)
    watch = Watch(config, exchanged, start, own) if is_users(exchanged) else None
    first_rows = []
    try:
        while not own.begin(state, rules, order):
            first_rows.append(_take(state).copy())
    except FAILURES as error:
        raise (error if watch is None else watch.sentence_of(error)) from None
    if sink is not None and config.run.mode == "async":
        sink.start(np.concatenate([*first_rows, _take(state)]))
    run, stretch, saved_at, told = state.run, max(1, FIRST_LOOKS // len(state.devices)), time.monotonic(), 0
    while True:
        begun, first_round = time.monotonic(), int(run["round"][0])
        try:
            over = _play_on(own, state, rules, first_round + stretch, watch)
            if progress is not None:
                progress(int(run["selections"][0]))
            if sink is not None:
                rows = int(run["rows"][0])
                sink.fresh(state.rows[told:rows])
                told = rows
        except BaseException:
            if sink is not None:
                sink.partial(state.rows[: int(run["rows"][0])])
            raise
        if sink is not None and (over or run["rows"][0] == len(state.rows)):
            sink.part(_take(state))
            saved_at, told = time.monotonic(), 0
        if over:
            return _played(config, state)
        if config.run.mode == "sync" and run["asking"][0] and run["answers"][0] == len(state.answers):
            state = state._replace(answers=np.concatenate([state.answers, np.zeros_like(state.answers)]))
        if sink is not None and time.monotonic() - saved_at > SAVE_EVERY_S:
            sink.partial(state.rows[: int(run["rows"][0])])
            saved_at = time.monotonic()
        if int(run["round"][0]) - first_round >= stretch:
            wanted_s = STRETCH_S if watch is None else watch.stretch_s(STRETCH_S)
            stretch = max(1, int(stretch * min(4.0, wanted_s / max(time.monotonic() - begun, 1e-4))))


def _play_on(own: Kernels, state: State, rules: Rules, pause_at: int, watch: Watch | None) -> bool:
    """A stretch; of a policy that is not fedtwin's own after a look at it, if it is time for one."""
    if watch is None:
        return own.play(state, rules, pause_at)
    run = state.run
    try:
        if not run["asking"][0] and not run["closing"][0]:
            watch.look()
        return own.play(state, rules, watch.pause_at(int(run["round"][0]) + 1, pause_at))
    except FAILURES as error:
        raise watch.sentence_of(error) from None


def _take(state: State) -> Records:
    """The rows so far; their places are free again."""
    rows = state.rows[: int(state.run["rows"][0])]
    state.run["rows"] = 0
    return rows


def _played(config: Config, state: State) -> Played:
    run = state.run[0]
    rounds, d_min = int(run["round"]), config.objective.min_mean_samples
    tally = Tally(**{sum_.name: run[sum_.name].item() for sum_ in dataclasses.fields(Tally)})
    return Played(
        tally,
        float(run["clock_s"]),
        rounds,
        state.fleet.heard["trained"],
        sum_of_queues(float(run["queue_sum"]), int(run["queue_round_sum"]), len(state.devices), rounds + 1, d_min),
        series_of(tally, [Point(*point) for point in state.curve.tolist()]),
    )
