"""Rounds that come to nothing use up no rounds of the run, and a run of which all come to nothing ends all the same."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedtwin.live.run import events
from fedtwin.live.run.book import Book
from fedtwin.live.run.core import Core
from fedtwin.live.run.ledger import read_events
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.tables import summary_of
from tests.live.run.test_live_run import begun, deliver, dispatch, next_question, take, weights

HOSTILE = "c"


def starts_anew(live: LiveRun, sent: events.Dispatched) -> None:
    """The device says hello afresh, with a task in its hands."""
    task, now_s = live.core.open[sent.token], live.now_s()
    live.commit(live.core.give_up(task, now_s, "the device was started anew", "offline"))


def let_back(live: LiveRun, name: str) -> bool:
    """As the edge server does when it hears from a device that was offline."""
    device = live.core.number_of(name)
    assert device is not None
    if live.now_s() < live.core.held_back_until_s(device):
        return False
    live.commit(events.StatusChanged(at_s=live.now_s(), device=device, status="idle"))
    return True


def replayed(live: LiveRun) -> Core:
    core = Core(live.config)
    for event in read_events(live.folder / "ledger.jsonl"):
        core.apply(event)
    return core


def play(live: LiveRun, hostile: Callable[[events.Dispatched], None]) -> None:
    """Two honest devices, of which one always has a task, and a hostile one."""
    open_: list[events.Dispatched] = []
    while not live.core.done:
        while len(open_) < 2 and isinstance(asked := next_question(live), events.Asked):
            sent = take(live, asked)
            if live.core.names[sent.device] == HOSTILE:
                hostile(sent)
            else:
                open_.append(sent)
        assert deliver(live, open_.pop(0), weights(0.0)) is None


def test_a_device_that_takes_tasks_and_starts_anew_uses_up_no_rounds(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"run.rounds": 50})
    lost = []

    def hostile(sent: events.Dispatched) -> None:
        lost.append(sent)
        starts_anew(live, sent)
        let_back(live, HOSTILE)

    play(live, hostile)
    counted = sum(sent.round > 0 for sent in lost)
    assert 1 <= len(lost) <= 3, "left alone after the second time"
    assert live.core.round == 50 + counted and live.core.rounds_counted == 50
    assert live.core.applied == 50 + 3 - sum(sent.round == 0 for sent in lost)
    book = Book(live.config)
    for event in read_events(live.folder / "ledger.jsonl"):
        book.read(event)
    told = summary_of(live.core.state, book, lambda means: means.as_dict())
    assert (told["rounds"], told["rounds_given_up"]) == (50 + counted, counted)
    assert replayed(live).progress == live.core.progress
    live.close()


def test_a_round_counts_after_all_when_its_upload_is_mixed_in_late(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"run.rounds": 5})
    for _ in range(3):
        assert deliver(live, dispatch(live), weights(0.0)) is None
    sent = dispatch(live)
    starts_anew(live, sent)
    assert (live.core.round, live.core.rounds_counted, live.core.progress.barren) == (1, 0, 1)
    assert deliver(live, sent, weights(0.0)) is None
    assert (live.core.rounds_counted, live.core.progress.barren) == (1, 0)
    live.close()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_fleet_that_never_delivers_comes_to_an_end(tmp_path: Path, mode: str) -> None:
    live = begun(tmp_path / "run", **{"run.rounds": 5, "run.mode": mode})
    for _ in range(100):
        if live.core.done:
            break
        asked = next_question(live)
        if isinstance(asked, events.Opened | events.Filled):
            live.commit(asked)
            live.close_round()
        elif isinstance(asked, events.Asked):
            sent = take(live, asked)
            starts_anew(live, sent)
            live.commit(events.StatusChanged(at_s=live.now_s(), device=sent.device, status="idle"))
    assert live.core.done and live.core.is_barren and live.core.applied == 0
    assert replayed(live).is_barren
    live.close()


def test_a_round_that_nobody_answers_does_not_count_and_one_that_all_decline_does(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"run.rounds": 5})
    for _ in range(3):
        assert deliver(live, dispatch(live), weights(0.0)) is None
    for offline, counted in ((True, 0), (False, 1)):
        while isinstance(asked := next_question(live), events.Asked):
            live.commit(asked)
            live.commit(events.Declined(at_s=live.now_s(), device=asked.device, reason="not connected", offline=offline))
        assert isinstance(asked, events.Passed)
        live.commit(asked)
        assert live.core.rounds_counted == counted
        for device in range(3):
            live.commit(events.StatusChanged(at_s=live.now_s(), device=device, status="idle"))
    assert live.core.round == 2
    live.close()
