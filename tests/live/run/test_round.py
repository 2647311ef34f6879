"""A synchronous round of a live run is mixed exactly once, by the uploads that were in time, wherever the server is killed."""

from pathlib import Path

import numpy as np
import pytest

from fedtwin import open_run
from fedtwin.live.run import events, opening
from fedtwin.live.run.ledger import read_events
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.wire.protocol import Reading
from tests.live.run.reading_back import as_read, start_s
from tests.live.run.test_live_run import (
    CODEC,
    TOKENS,
    begun,
    deliver,
    done_of,
    killed,
    weights,
)
from tests.live.run.test_live_run import dispatch as dispatch_one

SYNC = {"run.mode": "sync", "policy.name": "fairness"}
VALUES = {0: 1.0, 1: 2.0, 2: 6.0}


def opened(live: LiveRun) -> list[events.Dispatched]:
    """A round that all three devices have taken."""
    event = live.core.next_ask(live.now_s())
    assert isinstance(event, events.Opened)
    live.commit(event)
    sent = [dispatch_one(live) for _ in range(3)]
    event = live.core.next_ask(live.now_s())
    assert isinstance(event, events.Filled)
    live.commit(event)
    assert live.core.next_ask(live.now_s()) is None
    return sent


def of_kind(folder: Path, kind: type[events.Event]) -> list[events.Event]:
    return [event for event in read_events(folder / "ledger.jsonl") if isinstance(event, kind)]


def test_a_round_waits_for_all_and_becomes_their_mean(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **SYNC)
    for _ in range(2):
        sent = opened(live)
        for task in reversed(sent):
            assert not live.close_round()
            assert deliver(live, task, weights(VALUES[task.device], task.device)) is None
        assert live.close_round() and not live.close_round()
    assert live.core.version == 2 and live.core.round == 2 and live.core.selections == 6
    np.testing.assert_array_equal(live.model.weights.floats, 3.0)
    assert live.model.weights.counters.tolist() == [2]
    assert {device.status for device in live.core.twin.devices} == {"idle"}
    live.close()


def test_the_mean_does_not_depend_on_who_comes_first(tmp_path: Path) -> None:
    models = []
    for name, order in (("one", (0, 1, 2)), ("other", (2, 0, 1))):
        live = begun(tmp_path / name, **SYNC)
        sent = opened(live)
        for place in order:
            assert deliver(live, sent[place], weights(0.1 * (1.0 + sent[place].device))) is None
        assert live.close_round()
        models.append(live.model.encoded)
        live.close()
    assert models[0] == models[1]


@pytest.mark.parametrize("when", ["file", "before-line", "after-line"])
@pytest.mark.parametrize("what", ["upload", "close"])
def test_killed_at_any_point_a_round_is_mixed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, when: str
) -> None:
    folder = tmp_path / "run"
    live = begun(folder, **SYNC)
    sent = opened(live)
    first = sent if what == "close" else sent[:2]
    for task in first:
        assert deliver(live, task, weights(VALUES[task.device])) is None
    with killed(monkeypatch, when):
        if what == "close":
            live.close_round()
        else:
            deliver(live, sent[2], weights(VALUES[sent[2].device]))
    live._lock.release()

    again = opening.resume(folder)
    if what == "upload":
        outcome = deliver(again, sent[2], weights(VALUES[sent[2].device]))
        assert (outcome is None) == (when != "after-line")
        assert outcome is None or outcome.startswith("duplicate")
    assert again.close_round() == (what == "upload" or when != "after-line")
    np.testing.assert_array_equal(again.model.weights.floats, 3.0)
    assert len(of_kind(folder, events.Closed)) == 1 and again.core.version == 1
    assert [event.token for event in of_kind(folder, events.Applied)] == [task.token for task in sent]  # type: ignore[union-attr]
    again.close()


def test_who_is_late_is_not_mixed_in(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **SYNC, **{"run.sync_timeout_s": 0.3})
    in_time, late, failed = opened(live)
    assert late.deadline_s == pytest.approx(late.at_s + 0.3 + 0.25)
    assert deliver(live, in_time, weights(1.0)) is None
    slow = done_of(late).model_copy(update={"upload_s": Reading(value=0.25, source="modelled")})
    name = live.core.names[late.device]
    assert (live.receive(name, slow, CODEC.encode(weights(2.0)), late.at_s + 0.35) or "").startswith("late")
    live.commit(live.core.give_up(live.core.open[failed.token], live.now_s(), "failed: broken", "offline"))
    assert live.close_round()
    np.testing.assert_array_equal(live.model.weights.floats, 1.0)
    dropped, given_up = of_kind(tmp_path / "run", events.GivenUp)
    assert isinstance(dropped, events.GivenUp) and dropped.dropped and dropped.status == "idle"
    assert isinstance(given_up, events.GivenUp) and not given_up.dropped
    assert (deliver(live, failed, weights(3.0)) or "").startswith("late")
    twin = live.core.twin.devices
    assert [twin[task.device].status for task in (in_time, late, failed)] == ["idle", "idle", "offline"]
    assert all(device.selections == device.observations == 1 for device in twin)
    assert twin[failed.device].cost_sum >= 1.0 > twin[late.device].cost_sum
    live.close()


def test_a_round_of_which_all_are_late_leaves_the_model(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **SYNC, **{"run.sync_timeout_s": 0.3})
    before = live.model.encoded
    for task in opened(live):
        live.commit(live.core.drop(live.core.open[task.token], live.now_s()))
    assert live.close_round()
    assert live.core.version == 0 and live.model.encoded == before
    (closed,) = of_kind(tmp_path / "run", events.Closed)
    assert isinstance(closed, events.Closed) and closed.took_s == 0.3 and not closed.changed
    live.close()
    again = opening.resume(tmp_path / "run")
    assert isinstance(again.core.next_ask(again.now_s()), events.Opened)
    again.close()


def test_a_round_that_nobody_takes_lasts_a_while(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **SYNC)
    event = live.core.next_ask(0.0)
    assert isinstance(event, events.Opened)
    live.commit(event)
    while isinstance(asked := live.core.next_ask(0.0), events.Asked):
        live.commit(asked)
        live.commit(events.Declined(at_s=0.0, device=asked.device, reason="busy"))
    assert isinstance(asked, events.Filled)
    live.commit(asked)
    assert not live.core.round_is_over(0.9) and live.core.round_is_over(1.0)
    live.close()


def test_what_a_round_holds_is_kept_until_it_is_closed(tmp_path: Path) -> None:
    """Nobody's token is used twice, and nothing is left behind but the last two models."""
    live = begun(tmp_path / "run", **SYNC)
    for _ in range(3):
        for task in opened(live):
            assert deliver(live, task, weights(VALUES[task.device])) is None
        assert live.close_round()
    last = {path.name for path in (tmp_path / "run" / "models").iterdir()}
    assert {name for name in last if name.startswith("model")} == {f"model-{n:012d}.safetensors" for n in (0, 2, 3)}
    assert next(TOKENS)
    live.close()


def test_the_twin_and_the_rows_of_a_run_in_rounds_are_read_back(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **SYNC, **{"run.sync_timeout_s": 0.3})
    before = []
    for number in range(3):
        before.append(live.core.twin)
        first, *others = opened(live)
        for task in others:
            assert deliver(live, task, weights(VALUES[task.device])) is None
        live.commit(live.core.drop(live.core.open[first.token], live.now_s()))
        assert open_run(tmp_path / "run").twin() == as_read(live.core.twin, start_s(tmp_path / "run")), number
        assert live.close_round()
    run = open_run(tmp_path / "run")
    assert run.twin() == as_read(live.core.twin, start_s(tmp_path / "run"))
    assert [run.twin(round=round_ + 1) for round_ in range(3)] == [as_read(twin, start_s(tmp_path / "run")) for twin in before]
    rows = run.rounds.to_pylist()
    assert [row["dropped"] for row in rows] == [True, False, False] * 3
    assert {row["arrived"] for row in rows} == {None}
    assert (run.summary["rounds"], run.summary["drops"], run.summary["uploads_applied"]) == (9, 3, 6)
    assert run.summary["mean_time_s"] == pytest.approx(0.3)
    live.close()


ROLLING = """
from fedtwin.learning.aggregation import Aggregator, no_state

def apply(state, model, upload, settings):
    return state, model + 0.25 * upload.weights

def close_round(state, model, settings):
    return state, 2.0 * model

RULE = Aggregator(no_state, apply, close_round, modes=("sync",))
"""


def test_a_model_that_goes_on_in_an_empty_round_is_a_version_of_its_own(tmp_path: Path) -> None:
    """A rule may change the model when nobody came in time: two models must not be called the same."""
    (tmp_path / "rolling.py").write_text(ROLLING, encoding="utf-8")
    own = {"learning.aggregation": "rolling:RULE", "code.folder": str(tmp_path), "learning.average": "none"}
    live = begun(tmp_path / "run", **SYNC, **{"run.sync_timeout_s": 0.3}, **own)
    for task in opened(live):
        assert deliver(live, task, weights(1.0)) is None
    assert live.close_round()
    for task in opened(live):
        live.commit(live.core.drop(live.core.open[task.token], live.now_s()))
    assert live.close_round()
    np.testing.assert_array_equal(live.model.weights.floats, 3.0)
    closed = [event for event in of_kind(tmp_path / "run", events.Closed) if isinstance(event, events.Closed)]
    assert [(event.version, event.changed) for event in closed] == [(1, True), (2, True)]
    live.close()
    again = opening.resume(tmp_path / "run")
    np.testing.assert_array_equal(again.model.weights.floats, live.model.weights.floats)
    assert again.core.version == 2
    again.close()
