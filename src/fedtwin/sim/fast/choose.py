"""n*(t): the free device of least score, ties by rank, by a look at every device or by the tournament."""

from fedtwin.sim.fast.layout import NOBODY, Records, Rules, State
from fedtwin.sim.fast.steps import rate, view_of
from fedtwin.sim.fast.tournament import changed, least


def choose(state: State, rules: Rules, round_: int) -> int:
    if rules.indexed:
        return least(state.tree, state.devices, rules, round_)
    return scan(state.devices, rules, round_)


def scan(devices: Records, rules: Rules, round_: int) -> int:
    best, best_score = NOBODY, 0.0
    for device in range(len(devices)):
        if not devices[device].free:
            continue
        score = rate(rules, devices, view_of(rules, devices, device, round_))
        if (
            best == NOBODY
            or score < best_score
            or (score == best_score and devices[device].rank < devices[best].rank)
        ):  # fmt: skip
            best, best_score = device, score
    return best


def set_free(state: State, rules: Rules, device: int, free: bool, at: int) -> None:
    """The device may be asked, or may not; its state may have changed as well."""
    state.devices[device].free = free
    if rules.indexed:
        changed(state.tree, state.devices, rules, device, at)
