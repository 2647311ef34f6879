"""What the compiled engine would do now, without doing it: for a look from outside, between two rounds."""

import numpy as np
from numpy.typing import NDArray

from fedtwin.sim.fast.choose import choose, scan
from fedtwin.sim.fast.layout import Rules, State
from fedtwin.sim.fast.steps import draw_of, rate, view_of


def scores(state: State, rules: Rules, round_: int, asked: NDArray[np.int64], found: NDArray[np.float64]) -> None:
    """The scores of some devices at a round."""
    for place in range(len(asked)):
        device = asked[place]
        found[place] = rate(rules, state.fleet, state.run[0], view_of(rules, state.fleet, state.run[0], device, round_))


def best(state: State, rules: Rules, round_: int, by_scan: bool) -> int:
    """Who would be chosen among the free: as the engine does it, or by a look at everybody."""
    run = state.run[0]
    if by_scan:
        return int(scan(state.fleet, rules, run, round_))
    before = run.round
    run.round = round_
    device = choose(state.nodes, state.order, state.fleet, rules, run)
    run.round = before
    return int(device)


def draws(state: State, rules: Rules, round_: int, asked: NDArray[np.int64], found: NDArray[np.float64]) -> None:
    """What some devices would find at a round: gain, CPU frequency, 1 where they answer, and samples."""
    run = state.run[0]
    for place in range(len(asked)):
        draw = draw_of(rules, state.fleet, asked[place], round_, run.clock_s)
        found[place, 0], found[place, 1], found[place, 2] = draw.gain, draw.cpu_hz, draw.available
        found[place, 3] = draw.samples
