"""n*(t): the free device of least score, ties by rank, by a look at every device or by the tournament, whichever is cheaper."""

from fedtwin.sim.fast.layout import NOBODY, Fleet, Leaves, Records, Rules
from fedtwin.sim.fast.steps import plain_view, rate, view_of
from fedtwin.sim.fast.tournament import build, least, plain_score, settle_above

SETTLING_IN_LOOKS = 15
TRIAL_ROUNDS, FIRST_ROUNDS_OF_SCANS, MOST_ROUNDS_OF_SCANS = 64, 1_000, 1_000_000


def choose(nodes: Records, order: Leaves, fleet: Fleet, rules: Rules, run: Records) -> int:
    if rules.indexed and not run.scanning:
        return least(nodes, order, fleet.devices, rules, run.round)
    return scan(fleet, rules, run, run.round)


def scan(fleet: Fleet, rules: Rules, run: Records, round_: int) -> int:
    """Stands for one of the two below."""
    raise NotImplementedError


def scan_for_little(fleet: Fleet, rules: Rules, run: Records, round_: int) -> int:  # noqa: ARG001
    """Where the score looks at nothing that changes by itself."""
    best, best_score, best_rank = NOBODY, 0.0, 0
    devices = fleet.devices
    for device in range(len(devices)):
        known = devices[device]
        if not known.free:
            continue
        score = plain_score(rules, plain_view(rules, known, device, round_))
        if best == NOBODY or score < best_score or (score == best_score and known.rank < best_rank):
            best, best_score, best_rank = device, score, known.rank
    return best


def full_scan(fleet: Fleet, rules: Rules, run: Records, round_: int) -> int:
    best, best_score, best_rank = NOBODY, 0.0, 0
    devices = fleet.devices
    for device in range(len(devices)):
        known = devices[device]
        if not known.free:
            continue
        score = rate(rules, fleet, run, view_of(rules, fleet, run, device, round_))
        if best == NOBODY or score < best_score or (score == best_score and known.rank < best_rank):
            best, best_score, best_rank = device, score, known.rank
    return best


def changed(nodes: Records, order: Leaves, fleet: Fleet, rules: Rules, run: Records, device: int, at: int) -> None:
    """The device became free or busy, or its state changed."""
    if not run.scanning:
        settle_above(nodes, order, fleet.devices, rules, device, at)


def prefer_the_cheaper(nodes: Records, order: Leaves, fleet: Fleet, rules: Rules, run: Records) -> None:
    """Before a round: where many devices are so close that the tournament is played anew each round, scans are cheaper.

    The tournament is watched for a few rounds at a time; if it costs more than looking at everybody, scans take over for
    a while, longer every time, before it is built again. Who is chosen does not depend on it.
    """
    work = nodes[0].until - run.work_before
    if run.scanning:
        run.scanning = False
        build(nodes, order, fleet.devices, rules, run.round + 1)
    elif run.look_again_at > 0 and work * SETTLING_IN_LOOKS > TRIAL_ROUNDS * len(fleet.devices):
        run.scanning = True
        run.rounds_of_scans = min(max(4 * run.rounds_of_scans, FIRST_ROUNDS_OF_SCANS), MOST_ROUNDS_OF_SCANS)
    else:
        run.rounds_of_scans //= 2
    run.work_before = nodes[0].until
    run.look_again_at = run.round + (run.rounds_of_scans if run.scanning else TRIAL_ROUNDS)
