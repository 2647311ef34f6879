"""What a schedule may have beside its faults does come about: each once, with a fault that it is there for."""

import pytest

from tests.live.simulated.faults import FEW_LINES, Fault, Schedule
from tests.live.simulated.schedule import Outcome, play


def played(schedule: Schedule) -> Outcome:
    outcome = play(1, schedule)
    assert outcome.trouble is None
    return outcome


def served_at_s(outcome: Outcome, who: str) -> float:
    return next(said.at_s for said in outcome.said if said.who == who and said.message == "serving")


def test_a_crash_is_resumed_from_a_later_segment() -> None:
    outcome = played(Schedule((Fault(2.0, "crash", "edge", 0.5, 0.0),), devices=2, segment_lines=FEW_LINES))
    assert outcome.features["resumed after a segment"] == 1
    assert not any(said.message == "a snapshot is not used" for said in outcome.said)


def test_a_standby_of_the_folder_serves_at_once() -> None:
    outcome = played(Schedule((Fault(2.0, "crash", "edge", 20.0, 0.0),), devices=2, standby="folder"))
    assert outcome.features["taken over"] == 1
    assert served_at_s(outcome, "standby") < 2.5


def test_an_edge_server_that_wakes_up_after_a_takeover_fails_its_first_append() -> None:
    faults = (Fault(1.5, "pause", "edge", 5.5, 0.0),)
    outcome = played(Schedule(faults, devices=2, standby="stream", broker_is_ours=False, segment_lines=FEW_LINES))
    assert outcome.features["taken over"] == outcome.features["edge found that it was taken over"] == 1
    assert served_at_s(outcome, "standby") < 1.5 + 5.0


def test_a_round_ends_without_who_is_late() -> None:
    counts = played(Schedule((), sync=True, timeout=True)).counts
    assert counts["dropped"] > 0 and counts["applied"] + counts["dropped"] == counts["tasks"] == 30


@pytest.mark.parametrize("objects", [False, True])
def test_models_are_evaluated_through_a_kill_of_the_worker(objects: bool) -> None:
    outcome = played(Schedule((Fault(2.0, "crash", "evaluator", 1.0, 0.0),), devices=2, evaluator=True, objects=objects))
    assert outcome.counts["measured"] > 2
    assert (outcome.features["objects"] > outcome.counts["applied"]) == objects


def test_what_was_only_in_a_store_that_was_lost_is_given_up() -> None:
    """The edge server is stopped while devices upload, and nobody has read that when the store is lost."""
    faults = Fault(2.0, "pause", "edge", 4.0, 0.0), Fault(5.0, "lost store", "broker", 0.5, 0.0)
    outcome = played(Schedule(faults, devices=2, broker_is_ours=False))
    assert outcome.features["lost with the store and given up"] > 0


def test_a_standby_whose_disk_was_full_when_it_first_followed_stands_by_again() -> None:
    """It had an empty ledger, and took that for one of another run, for ever."""
    faults = Fault(0.1, "full disk", "standby", 1.0, 0.8), Fault(3.0, "crash", "edge", 40.0, 0.0)
    outcome = played(Schedule(faults, devices=2, standby="stream", broker_is_ours=False))
    assert any(said.who == "standby" and "No space left on device" in said.message for said in outcome.said)
    assert outcome.features["taken over"] == 1


def test_a_standby_that_has_only_followed_leaves_a_run_that_the_broker_has_lost_to_who_has_its_model() -> None:
    """It had lines, and neither settings nor model: it took the lease, could not serve, and nobody else might."""
    outcome = played(
        Schedule((Fault(2.0, "lost store", "broker", 12.0, 0.0),), devices=2, standby="stream", broker_is_ours=False)
    )
    assert not any("cannot be resumed" in said.message for said in outcome.said)
