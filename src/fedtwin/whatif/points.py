"""Where a future is looked at on its way, and what is made of it at the end; alike for both engines."""

import math

import numpy as np
from numpy.typing import NDArray

from fedtwin.whatif.answer import Floats, Played
from fedtwin.whatif.fork import Fork

MOST_POINTS = 100
Points = NDArray[np.int64]


def points_of(fork: Fork, rounds: int) -> Points:
    """The rounds after which a future is noted, evenly spread; the last point is its end, whenever that is."""
    ahead = math.ceil(rounds / fork.config.fleet.channels) if fork.sync else rounds
    count = min(MOST_POINTS, ahead)
    points: Points = fork.round + np.ceil(np.arange(1, count + 1) * (ahead / count)).astype(np.int64)
    return points


def played(fork: Fork, noted: Floats, time_sum_s: float, energy_sum_j: float, trained: Floats, last_round: int) -> Played:
    """``noted`` has clock, sum of costs, selections and total queue; ``trained`` the samples of every device since the fork."""
    clock_s, cost_sum, selections, total_queue = noted.T
    made = selections - fork.selections
    mean_cost = np.divide(cost_sum, made, out=np.full(len(made), np.nan), where=made > 0)
    there = np.delete(trained, fork.lost)
    least = float(there.min()) / max(last_round - fork.round, 1)
    means = (time_sum_s / made[-1], energy_sum_j / made[-1]) if made[-1] > 0 else (np.nan, np.nan)
    return Played(clock_s, mean_cost, total_queue, np.array([mean_cost[-1], *means, least, total_queue[-1]]))
