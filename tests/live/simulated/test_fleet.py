"""The whole edge server with real agents, in one process and on virtual time."""

from pathlib import Path

import pytest

from fedtwin.live.run import events
from fedtwin.live.server.lease import LEASE_S
from tests.live.simulated.faults import Fault, Schedule
from tests.live.simulated.fleet import Fleet
from tests.live.simulated.loop import run_virtually
from tests.live.simulated.said import listening
from tests.live.simulated.schedule import play


def played(fleet: Fleet) -> list[events.Event]:
    async def main() -> None:
        fleet.start()
        try:
            assert await fleet.until(lambda: fleet.finished, 300.0)
        finally:
            await fleet.stop()

    with listening(fleet.loop):
        run_virtually(main(), fleet.loop)
    return [event for _, event in fleet.happened]


def test_three_hundred_devices(tmp_path: Path) -> None:
    happened = played(Fleet(tmp_path, 1, devices=300, rounds=300))
    applied = [event for event in happened if isinstance(event, events.Applied)]
    sent = [event for event in happened if isinstance(event, events.Dispatched)]
    assert sorted(event.token for event in applied) == sorted(event.token for event in sent)
    assert sum(event.round > 0 for event in sent) == 300
    assert len({event.device for event in applied}) == 300
    assert not [event for event in happened if isinstance(event, events.Refused | events.GivenUp)]


def test_a_fleet_without_faults_is_the_same_every_time() -> None:
    first, second = (play(7, Schedule(())) for _ in range(2))
    assert list(map(str, first.said)) == list(map(str, second.said))
    assert first.trouble is None and first.counts["applied"] == 34
    assert first.counts["given_up"] == first.counts["refused"] == 0


@pytest.mark.parametrize("at_s", [0.3, 1.2])
def test_an_edge_server_that_cannot_write_its_ledger_ends_whoever_met_that(at_s: float) -> None:
    """A hello did: the server lived on, and could never write again. Later it is an upload, whose model is written first."""
    outcome = play(3, Schedule((Fault(at_s, "full disk", "edge", 0.5, 0.75),)))
    assert outcome.trouble is None
    what = "ledger" if at_s < 0.5 else "model"
    assert any(said.message.startswith(f"error: The {what}") and "cannot be written" in said.message for said in outcome.said)


def test_a_broker_of_ours_that_stores_nothing_while_the_edge_server_opens_is_started_again() -> None:
    """It gave up after half a minute, and so did the next one, for ever."""
    faults = Fault(1.5, "frozen stream", "broker", 0.1, 0.5), Fault(1.5, "crash", "edge", 0.5, 0.0)
    outcome = play(1, Schedule(faults, devices=2))
    assert outcome.trouble is None
    assert any(said.message == "the broker did not store and was started again" for said in outcome.said)


def test_an_edge_server_that_crashed_holds_its_lease_and_is_back_at_once() -> None:
    """Nobody else may have the name for a while; its own folder may."""
    outcome = play(1, Schedule((Fault(1.5, "crash", "edge", 0.5, 0.0),), devices=2))
    served = [said.at_s for said in outcome.said if said.message == "serving"]
    assert outcome.trouble is None and len(served) == 2
    assert served[1] < 1.5 + 0.5 + 0.5 < 1.5 + LEASE_S
