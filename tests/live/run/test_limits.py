"""T_max and E_max of boards: as given, or from what they measured; an event, so that a run that goes on has the same."""

from pathlib import Path

import pytest

from fedtwin.config import build_config
from fedtwin.live.run import events, opening
from fedtwin.live.run.core import Core
from fedtwin.live.run.limits import LEAST_TIME_S, ROOM, UNSETTLED, Need, limits_for
from fedtwin.live.run.state import State
from fedtwin.live.wire.protocol import Accept, Decline, Hello, Tried
from tests.live.run.test_live_run import TOKENS, begun, deliver, weights

FROM_FLEET = {"live.limits_from_fleet": ["max_time_s", "max_energy_j"]}
SLOW = Tried(cycles_per_sample=9e7, update_bits=1e6, goodput_bps=1e6, time_s=10.0, energy_j=4.0)
QUICK = Tried(cycles_per_sample=1e6, update_bits=1e6, goodput_bps=1e6, time_s=2.0, energy_j=5.0)


def core_of(**settings: object) -> Core:
    return Core(build_config({}, {"fleet.devices": 2, "fleet.channels": 1, **FROM_FLEET, **settings}))


def join(core: Core, name: str, measured: Tried | None) -> None:
    core.apply(core.join(name, Hello(samples=50, measured=measured), 0.0))
    settle(core)
    if core.ready():
        core.apply(core.start(0.0))


def settle(core: Core) -> events.Limits | None:
    limits = core.settle_limits(1.0)
    if limits is not None:
        core.apply(limits)
    return limits


def answered(core: Core, answer: Accept | Decline) -> events.Dispatched | events.Declined:
    asked = core.next_ask(1.0)
    while not isinstance(asked, events.Asked):
        assert asked is not None
        core.apply(asked)
        asked = core.next_ask(1.0)
    core.apply(asked)
    event = core.answered(asked, answer, f"{1:032x}", 1.0)
    core.apply(event)
    return event


def offer(time_s: float) -> Accept:
    return Accept(gain=1e-9, cpu_hz=2e9, power_w=0.1, compute_s=time_s, upload_s=0.0, compute_j=0.1, upload_j=0.0)


def test_three_times_what_nine_of_ten_need() -> None:
    needs = [Need(float(number), 2.0 * number) for number in range(1, 11)]
    assert limits_for(needs, time_scale=1.0) == (9 * ROOM, 18 * ROOM)


def test_a_moments_load_keeps_no_quick_board_out() -> None:
    """T_max is a second of wall time at least, and E_max grows with it: time and energy keep their weights."""
    assert limits_for([Need(0.01, 0.02)], time_scale=1.0) == (LEAST_TIME_S, 2 * LEAST_TIME_S)
    assert limits_for([Need(0.01, 0.02)], time_scale=0.1) == (10 * LEAST_TIME_S, 20 * LEAST_TIME_S)
    time_s, energy_j = limits_for([Need(0.0, 0.0)], time_scale=1.0)
    assert time_s >= LEAST_TIME_S and energy_j > 0.0


def test_limits_are_settled_when_the_run_can_start_and_hold_for_boards_only() -> None:
    core = core_of(**{"fleet.devices": 3})
    join(core, "a", QUICK)
    assert core.limits is None, "the others are not there yet"
    join(core, "b", SLOW)
    join(core, "emulated", None)
    assert core.limits is not None and core.limits.devices == 2
    assert core.terms_of(0).max_time_s == 10.0 * ROOM and core.terms_of(0).max_energy_j == 5.0 * ROOM
    assert core.terms_of(1).cycles_per_sample == 9e7 and core.terms_of(1).update_bits == 1e6, "predictions begin with it"
    assert core.terms_of(2) == core.terms, "an emulated device has the simulator's numbers"
    assert core.limits_of(2) == {} and core.limits_of(0) == {"max_time_s": 30.0, "max_energy_j": 15.0}


def test_a_limit_that_is_given_stays() -> None:
    core = core_of(**{"live.limits_from_fleet": ["max_energy_j"], "objective.max_time_s": 30.0})
    join(core, "a", QUICK)
    join(core, "b", SLOW)
    assert core.limits_of(0) == {"max_energy_j": 5.0 * ROOM} and core.terms_of(0).max_time_s == 30.0
    core = core_of(**{"live.limits_from_fleet": []})
    join(core, "a", QUICK)
    join(core, "b", SLOW)
    assert core.limits is None and core.terms_of(0).max_time_s == 1.0


def test_they_are_settled_again_when_the_fleet_is_more_than_twice_as_large() -> None:
    core = core_of()
    for name in ("a", "b"):
        join(core, name, QUICK)
    before = core.limits
    for name in ("c", "d"):
        join(core, name, SLOW)
    assert core.limits is before, "twice as large is not more"
    join(core, "e", SLOW)
    assert core.limits is not before and core.terms_of(0).max_time_s == 10.0 * ROOM
    assert settle(core) is None


def test_the_first_upload_of_a_board_that_measured_nothing_shows_what_it_needs(tmp_path: Path) -> None:
    """As of a user's command: until then no limit keeps it out."""
    live = begun(tmp_path / "run", **FROM_FLEET, **{"fleet.devices": 4, "fleet.channels": 4})
    live.commit(live.core.join("board", Hello(samples=50, measured=Tried()), live.now_s()))
    core = live.core
    board = core.number_of("board")
    assert board is not None and core.terms_of(board).max_time_s == UNSETTLED
    for _ in range(2):
        while (asked := core.next_ask(live.now_s())) is not None:
            live.commit(asked)
            if isinstance(asked, events.Asked):
                taken = core.answered(asked, offer(700.0 if asked.device == board else 0.5), next(TOKENS), live.now_s())
                live.commit(taken)
        live.commit(core.offer_again(live.now_s()))
    task = core.task_of(board)
    assert task is not None and task.sent.compute_s == 700.0
    assert core.settle_limits(live.now_s()) is None
    deliver(live, task.sent, weights(1.0))
    limits = core.settle_limits(live.now_s())
    assert limits is not None and limits.devices == 1
    live.commit(limits)
    assert core.terms_of(board).max_time_s == limits.max_time_s < 700.0
    snapshot = core.state.snapshot()
    again = State.restore(core.config, snapshot)
    assert again.snapshot() == snapshot and again.limits == limits and again.terms_of(board) == core.terms_of(board)
    live.close()
    resumed = opening.resume(tmp_path / "run")
    assert resumed.core.limits == limits and resumed.core.settle_limits(1e9) is None
    resumed.close()


def test_a_decline_says_what_would_have_been_needed() -> None:
    core = core_of()
    join(core, "a", QUICK)
    join(core, "b", SLOW)
    declined = answered(core, Decline(reason="compute-time", time_s=40.0, energy_j=1.0))
    assert isinstance(declined, events.Declined) and (declined.time_s, declined.energy_j) == (40.0, 1.0)


@pytest.mark.parametrize(("time_s", "taken"), [(29.9, True), (30.1, False)])
def test_an_offer_over_the_settled_limits_is_a_decline(time_s: float, taken: bool) -> None:
    core = core_of()
    join(core, "a", QUICK)
    join(core, "b", SLOW)
    assert isinstance(answered(core, offer(time_s)), events.Dispatched) == taken
