"""What the compiled engine would do now, without doing it: for a look from outside, between two rounds."""

import numpy as np
from numpy.typing import NDArray

from fedtwin.sim.fast.choose import choose, scan
from fedtwin.sim.fast.layout import Rules, State
from fedtwin.sim.fast.steps import rate, view_of


def scores(state: State, rules: Rules, round_: int, asked: NDArray[np.int64], found: NDArray[np.float64]) -> None:
    """The scores of some devices at a round."""
    for place in range(len(asked)):
        device = asked[place]
        known = state.devices[device]
        found[place] = rate(rules, known, view_of(rules, known, device, round_))


def best(state: State, rules: Rules, round_: int, by_scan: bool) -> int:
    """Who would be chosen among the free: as the engine does it, or by a look at everybody."""
    run = state.run[0]
    if by_scan:
        return int(scan(state.devices, rules, round_))
    before = run.round
    run.round = round_
    device = choose(state.nodes, state.order, state.devices, rules, run)
    run.round = before
    return int(device)
