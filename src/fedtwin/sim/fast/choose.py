"""n*(t): the free device of least score, ties by rank, by a look at every device or by the tournament."""

from fedtwin.sim.fast.layout import NOBODY, Leaves, Records, Rules
from fedtwin.sim.fast.steps import rate, view_of
from fedtwin.sim.fast.tournament import least


def choose(nodes: Records, order: Leaves, devices: Records, rules: Rules, round_: int) -> int:
    if rules.indexed:
        return least(nodes, order, devices, rules, round_)
    return scan(devices, rules, round_)


def scan(devices: Records, rules: Rules, round_: int) -> int:
    best, best_score, best_rank = NOBODY, 0.0, 0
    for device in range(len(devices)):
        known = devices[device]
        if not known.free:
            continue
        score = rate(rules, known, view_of(rules, known, device, round_))
        if best == NOBODY or score < best_score or (score == best_score and known.rank < best_rank):
            best, best_score, best_rank = device, score, known.rank
    return best
