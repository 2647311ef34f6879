"""One future in compiled code: the engine of ``fedtwin.sim.fast``, from where a fork stands, noted at some rounds."""

import numpy as np
from numpy.typing import NDArray

from fedtwin.sim.fast.asynchronous import arrive
from fedtwin.sim.fast.asynchronous import play as play_async
from fedtwin.sim.fast.layout import NEVER, Rules, State
from fedtwin.sim.fast.synchronous import play as play_sync
from fedtwin.twin.state import queue_at, sum_of_queues


def asynchronous_future(
    state: State, rules: Rules, points: NDArray[np.int64], lost: NDArray[np.int64], most: int, noted: NDArray[np.float64]
) -> None:
    """Uploads beyond ``most`` arrive before anything is opened: there are fewer channels now."""
    run = state.run[0]
    while run.flights > most:
        arrive(run, state.fleet, state.flights, rules)
    for k in range(len(points)):
        play_async(state, rules, points[k] if k + 1 < len(points) else NEVER)
        note(state, rules, lost, noted, k)


def synchronous_future(
    state: State, rules: Rules, points: NDArray[np.int64], lost: NDArray[np.int64], most: int, noted: NDArray[np.float64]
) -> None:
    """Nothing is under way between two synchronous rounds, so ``most`` is always kept."""
    if state.run[0].flights > most:
        raise ValueError("uploads are on their way between two synchronous rounds")
    for k in range(len(points)):
        play_sync(state, rules, points[k] if k + 1 < len(points) else NEVER)
        note(state, rules, lost, noted, k)


def note(state: State, rules: Rules, lost: NDArray[np.int64], noted: NDArray[np.float64], k: int) -> None:
    run, devices, d_min = state.run[0], state.fleet.devices, rules.knobs.min_mean_samples
    total = sum_of_queues(run.queue_sum, run.queue_round_sum, rules.devices, run.round + 1, d_min)
    for place in range(len(lost)):
        known = devices[lost[place]]
        total -= queue_at(known.queue, known.queue_round, run.round + 1, d_min)
    noted[k, 0], noted[k, 1], noted[k, 2], noted[k, 3] = run.clock_s, run.cost_sum, float(run.selections), total
