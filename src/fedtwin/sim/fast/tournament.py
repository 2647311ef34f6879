"""The device of least score without a look at every device: a kinetic tournament.

All scores change with every round, but their order seldom does, and a policy can say for how long a lead is certain
(``Policy.lead``). Every inner node of a binary tree keeps the better of its two children and the round until which it stays
the better one, whatever the rounding; a decision looks again only below nodes whose time is up, and a device that changes
touches the nodes above it. The answer is exactly that of a scan, ties included.

Leaves are in the order of samples, then rank: devices whose scores move alike are neighbours.
"""

import math

from fedtwin.policies.base import Knobs, View, last_if_nan
from fedtwin.sim.fast.layout import NEVER, NOBODY, Leaves, Records, Rules
from fedtwin.sim.fast.steps import knobs_in, plain_view, score_of_policy

LONG = 1e15


def lead_of_policy(ahead: View, behind: View, gap: float, knobs: Knobs) -> float:
    """Stands for the policy's ``lead``."""
    raise NotImplementedError


def build(nodes: Records, order: Leaves, devices: Records, rules: Rules, at: int) -> None:
    for node in range(len(nodes) - 1, 0, -1):
        settle(nodes, order, devices, rules, node, at)


def settle_above(nodes: Records, order: Leaves, devices: Records, rules: Rules, device: int, at: int) -> None:
    """The device became free or busy, or its state changed: everything above it is decided again, as of round ``at``."""
    node = (len(nodes) + devices[device].leaf) // 2
    while node >= 1:
        settle(nodes, order, devices, rules, node, at)
        node //= 2


def least(nodes: Records, order: Leaves, devices: Records, rules: Rules, at: int) -> int:
    """The free device of least score at round ``at``, or NOBODY. Visits, children first, the nodes whose time is up."""
    node = 1
    while True:
        if node < len(nodes) and nodes[node].until <= at:
            node *= 2
            continue
        while node > 1 and node % 2 == 1:
            node //= 2
            settle(nodes, order, devices, rules, node, at)
        if node == 1:
            return int(nodes[1].best)
        node += 1


def settle(nodes: Records, order: Leaves, devices: Records, rules: Rules, node: int, at: int) -> None:
    """Who is better of the two below, and until when that is certain."""
    left, right = best_below(nodes, order, devices, 2 * node), best_below(nodes, order, devices, 2 * node + 1)
    until = NEVER
    if 2 * node < len(nodes):
        until = min(nodes[2 * node].until, nodes[2 * node + 1].until)
    own = nodes[node]
    nodes[0].until += 1
    if left == NOBODY or right == NOBODY:
        own.best, own.until = max(left, right), until
        return
    known_left, known_right = devices[left], devices[right]
    view_left, view_right = plain_view(rules, known_left, left, at), plain_view(rules, known_right, right, at)
    score_left, score_right = plain_score(rules, view_left), plain_score(rules, view_right)
    left_leads = score_left < score_right or (score_left == score_right and known_left.rank < known_right.rank)
    if not same_for_ever(known_left, known_right):
        if left_leads:
            rounds = lead_of_policy(view_left, view_right, score_right - score_left, knobs_in(rules))
        else:
            rounds = lead_of_policy(view_right, view_left, score_left - score_right, knobs_in(rules))
        if not rounds >= LONG:
            until = min(until, at + 1 + (math.floor(rounds) if rounds > 0.0 else 0))
    own.best, own.until = left if left_leads else right, until


def plain_score(rules: Rules, view: View) -> float:
    """Of a policy that looks at nothing that changes by itself, as one with a lead does."""
    return last_if_nan(score_of_policy(view, knobs_in(rules)))


def best_below(nodes: Records, order: Leaves, devices: Records, node: int) -> int:
    if node < len(nodes):
        return int(nodes[node].best)
    leaf = node - len(nodes)
    if leaf >= len(order) or not devices[order[leaf]].free:
        return NOBODY
    return int(order[leaf])


def same_for_ever(a: Records, b: Records) -> bool:
    """Equal in all that a score may look at but their number: equal scores now and, as long as neither is selected, always."""
    return bool(
        a.samples == b.samples
        and a.queue == b.queue
        and a.queue_round == b.queue_round
        and a.selections == b.selections
        and a.observations == b.observations
        and a.cost_sum == b.cost_sum
    )


def never_the_same(a: Records, b: Records) -> bool:  # noqa: ARG001
    """In place of ``same_for_ever``, for a score that looks at the device's number."""
    return False
