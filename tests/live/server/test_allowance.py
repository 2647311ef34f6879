"""What a device may send: enough for all that an honest one does, and no flood."""

from hypothesis import given
from hypothesis import strategies as st

from fedtwin.live.server.allowance import Allowance, Pace, Rates

RATES = Rates(200.0, 2**20, upload_bytes=1_000_000)


def test_an_honest_device_at_full_speed_is_never_over() -> None:
    """A hundred tasks a second for ten minutes, every upload sent twice, and a heartbeat a second."""
    allowance = Allowance(RATES)
    for _ in range(600):
        for _ in range(100):
            allowance.asked()
            allowance.given_a_task()
            allowance.sent(2 + 8, 2 * 1_000_000 + 2_000, 0.0)
        allowance.sent(1, 200, 1.0)
    assert not allowance.is_overdrawn


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans(), st.floats(0.0, 5.0)), max_size=30))
def test_an_honest_device_is_never_over_however_far_apart_the_looks_are(looks: list[tuple[int, bool, float]]) -> None:
    """Many tasks between two looks, every upload sent twice; the upload of the last one may be counted by a later look only."""
    allowance, uncounted = Allowance(RATES), 0
    for tasks, last_is_late, seconds in looks:
        for _ in range(tasks):
            allowance.asked()
            allowance.given_a_task()
        uncounted += tasks
        counted = max(uncounted - last_is_late, 0)
        allowance.sent(10 * counted, 2_002_000 * counted, seconds)
        uncounted -= counted
        assert not allowance.is_overdrawn


def test_tasks_are_no_credit_for_a_flood_beside_them() -> None:
    allowance = Allowance(RATES)
    for _ in range(40):
        for _ in range(15):
            allowance.given_a_task()
        allowance.sent(15 * 10 + 2_500, 15 * 2_000_000, 0.25)
    assert allowance.is_overdrawn


def test_a_flood_is_over_in_a_moment_and_worked_off_in_time() -> None:
    messages, size = Allowance(RATES), Allowance(RATES)
    messages.sent(55_000, 0, 1.0)
    size.sent(0, 150_000_000, 1.0)
    assert messages.is_overdrawn and size.is_overdrawn
    messages.sent(0, 0, 5.0)
    assert messages.is_overdrawn
    messages.sent(0, 0, 10.0)
    assert not messages.is_overdrawn


def test_what_is_not_used_is_no_credit_for_a_flood() -> None:
    allowance = Allowance(RATES)
    allowance.sent(0, 0, 10**6)
    for _ in range(1000):
        allowance.given_a_task()
    for _ in range(2):
        allowance.sent(0, 0, 0.25)
    allowance.sent(10_000, 0, 0.25)
    assert allowance.is_overdrawn


def test_what_is_sent_while_nobody_looked_is_held_against_all_that_time() -> None:
    """The edge server stood still for a minute, the device did not."""
    allowance = Allowance(RATES)
    allowance.sent(0.75 * 200.0 * 60.0, 0, 60.0)
    assert not allowance.is_overdrawn


def test_the_pace_is_held_by_name() -> None:
    pace = Pace(2.0, 3.0, most_names=2)
    assert [pace.lets("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert pace.lets("b", 0.0)
    assert pace.lets("a", 1.0) and not pace.lets("a", 1.0), "one was owed, of two that a second brings"
    assert pace.lets("c", 1.0) and pace.lets("a", 1.0), "more names than are kept: all begin anew"
