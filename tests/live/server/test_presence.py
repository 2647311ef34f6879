"""Going, coming back and losing one's rights are one line of the log each."""

import logging
from pathlib import Path

import pytest

from fedtwin.live.broker.provisioning import provision, revoke
from fedtwin.live.run import events
from fedtwin.live.server.presence import Presence
from tests.live.run.test_live_run import begun, dispatch, next_question


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.message} {record.fields['device']}" for record in caplog.records]  # type: ignore[attr-defined]


def test_offline_and_reconnected_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedtwin.live")
    live, presence = begun(tmp_path / "run"), Presence(None)
    live.listeners.append(presence.happened)
    for status in ("idle", "offline", "offline", "idle", "idle"):
        live.commit(events.StatusChanged(at_s=live.now_s(), device=1, status=status))
    assert lines(caplog) == ["offline b", "reconnected b"]
    caplog.clear()
    asked = next_question(live)
    assert isinstance(asked, events.Asked)
    live.commit(asked)
    live.commit(live.core.unanswered(asked, live.now_s(), "not connected"))
    live.commit(events.StatusChanged(at_s=live.now_s(), device=asked.device, status="offline"))
    assert lines(caplog) == [f"offline {live.core.names[asked.device]}"]
    live.close()


def test_who_dies_in_flight_is_said_to_be_offline_and_who_only_failed_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its task is given up, so it is offline already when it has been silent for long enough."""
    caplog.set_level(logging.INFO, "fedtwin.live")
    live, presence = begun(tmp_path / "run"), Presence(None)
    live.listeners.append(presence.happened)
    sent = dispatch(live)
    name = live.core.names[sent.device]
    task = live.core.task_of(sent.device)
    assert task is not None
    live.commit(live.core.give_up(task, live.now_s(), "the deadline has passed", "offline"))
    presence.missed(lambda _: False, live)
    assert lines(caplog) == [], "it was heard"
    for _ in range(2):
        presence.missed(lambda other: other == name, live)
    assert lines(caplog) == [f"offline {name}"]
    live.commit(events.StatusChanged(at_s=live.now_s(), device=sent.device, status="idle"))
    presence.missed(lambda _: True, live)
    assert lines(caplog) == [f"offline {name}", f"reconnected {name}"]
    live.close()


def test_who_is_revoked_by_a_person_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedtwin.live")
    provision(tmp_path, run="main", server_names=[], devices=["a", "b", "c"])
    revoke(tmp_path, "c")
    presence = Presence(tmp_path / "edge")
    presence.look(0.0)
    revoke(tmp_path, "a")
    revoke(tmp_path, "b", cut=True)
    presence.look(0.5)
    assert lines(caplog) == [], "not looked at more often than once a second"
    for now in (1.0, 2.0, 3.0):
        presence.look(now)
    assert lines(caplog) == ["revoked a"]
    provision(tmp_path, run="main", server_names=[], devices=["a"])
    presence.look(4.0)
    assert lines(caplog) == ["revoked a", "has rights again a"]
    (tmp_path / "fleet.json").write_text("{")
    presence.look(5.0)
