"""The device of least score without a look at every device: a kinetic tournament.

All scores change with every round, but their order seldom does, and a policy can say for how long a lead is certain
(``Policy.lead``). Every inner node of a binary tree keeps the better of its two children and the round until which it stays
the better one, whatever the rounding; a decision looks again only below nodes whose time is up, and a device that changes
touches the nodes above it. The answer is exactly that of a scan, ties included.

Leaves are in the order of samples, then rank: devices whose scores move alike are neighbours.
"""

import math

from fedtwin.policies.base import Knobs, View
from fedtwin.sim.fast.layout import NEVER, NOBODY, Records, Rules, Tree
from fedtwin.sim.fast.steps import rate, view_of


def lead_of_policy(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:
    """Stands for the policy's ``lead``."""
    raise NotImplementedError


def build(tree: Tree, devices: Records, rules: Rules, at: int) -> None:
    for node in range(len(tree.best) - 1, 0, -1):
        settle(tree, devices, rules, node, at)


def changed(tree: Tree, devices: Records, rules: Rules, device: int, at: int) -> None:
    """The device became free or busy, or its state changed: everything above it is decided again, as of round ``at``."""
    node = (len(tree.best) + tree.place[device]) // 2
    while node >= 1:
        settle(tree, devices, rules, node, at)
        node //= 2


def least(tree: Tree, devices: Records, rules: Rules, at: int) -> int:
    """The free device of least score at round ``at``, or NOBODY. Visits, children first, the nodes whose time is up."""
    leaves = len(tree.best)
    node = 1
    while True:
        if node < leaves and tree.until[node] <= at:
            node *= 2
            continue
        while node > 1 and node % 2 == 1:
            node //= 2
            settle(tree, devices, rules, node, at)
        if node == 1:
            return int(tree.best[1])
        node += 1


def settle(tree: Tree, devices: Records, rules: Rules, node: int, at: int) -> None:
    """Who is better of the two below, and until when that is certain."""
    left, right = best_below(tree, devices, 2 * node), best_below(tree, devices, 2 * node + 1)
    until = min(until_below(tree, 2 * node), until_below(tree, 2 * node + 1))
    if left == NOBODY or right == NOBODY:
        tree.best[node] = max(left, right)
        tree.until[node] = until
        return
    view_left, view_right = view_of(rules, devices, left, at), view_of(rules, devices, right, at)
    score_left, score_right = rate(rules, devices, view_left), rate(rules, devices, view_right)
    left_leads = score_left < score_right or (score_left == score_right and devices[left].rank < devices[right].rank)
    if not same_for_ever(devices[left], devices[right]):
        if left_leads:
            rounds = lead_of_policy(view_left, view_right, score_right - score_left, rules.knobs)
        else:
            rounds = lead_of_policy(view_right, view_left, score_left - score_right, rules.knobs)
        until = min(until, at + 1 + math.floor(rounds)) if rounds < NEVER / 2 else until
    tree.best[node] = left if left_leads else right
    tree.until[node] = until


def best_below(tree: Tree, devices: Records, node: int) -> int:
    if node < len(tree.best):
        return int(tree.best[node])
    leaf = node - len(tree.best)
    if leaf >= len(tree.order) or not devices[tree.order[leaf]].free:
        return NOBODY
    return int(tree.order[leaf])


def until_below(tree: Tree, node: int) -> int:
    return int(tree.until[node]) if node < len(tree.best) else NEVER


def same_for_ever(a: Records, b: Records) -> bool:
    """Equal in all that a score may look at: equal scores now and, as long as neither is selected, always."""
    return bool(
        a.samples == b.samples
        and a.queue == b.queue
        and a.queue_round == b.queue_round
        and a.selections == b.selections
        and a.observations == b.observations
        and a.cost_sum == b.cost_sum
    )
