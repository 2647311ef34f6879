"""A device that is left out is let back: by time, or by a person, and the ledger knows it."""

from pathlib import Path

from fedtwin import open_run
from fedtwin.live.run import events, opening
from fedtwin.live.run.live_run import LiveRun
from tests.live.run.test_live_run import begun, deliver, dispatch, weights
from tests.live.run.test_progress import replayed, starts_anew


def same_when_replayed(live: LiveRun) -> bool:
    return bool(replayed(live).state.snapshot() == live.core.state.snapshot())


def test_a_person_ends_a_quarantine(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    sent = dispatch(live)
    name = live.core.names[sent.device]
    live.quarantine(name, "norm: too much")
    assert live.core.is_quarantined(name) and live.core.twin.devices[sent.device].status == "quarantined"
    live.release(name)
    assert not live.core.is_quarantined(name) and live.core.twin.devices[sent.device].status == "offline"
    assert same_when_replayed(live)
    live.commit(events.StatusChanged(at_s=live.now_s(), device=sent.device, status="idle"))
    while (sent := dispatch(live)).device != live.core.number_of(name):
        assert deliver(live, sent, weights(0.0)) is None
    assert deliver(live, sent, weights(0.0)) is None, "it takes part again"
    live.close()


def test_a_person_ends_a_back_off_and_a_device_at_work_stays_there(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    failures, name = 0, live.core.names[0]
    while (sent := dispatch(live)).device != 0 or failures < 2:
        if sent.device != 0:
            assert deliver(live, sent, weights(0.0)) is None
            continue
        failures += 1
        starts_anew(live, sent)
        live.commit(events.StatusChanged(at_s=live.now_s(), device=0, status="idle"))
    assert live.core.backed_off == [name] == open_run(tmp_path / "run").summary["backed_off"]
    live.release(name)
    assert live.core.backed_off == [] and live.core.twin.devices[0].status == "in-flight"
    assert same_when_replayed(live) and deliver(live, sent, weights(0.0)) is None
    live.close()


def test_quarantines_are_counted_over_a_resume(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    for name in ("a", "b", "a"):
        live.quarantine(name, "norm: too much")
    live.release("a")
    live.quarantine("a", "norm: too much")
    live.release("nobody")
    live.close()
    again = opening.resume(tmp_path / "run")
    assert again.core.quarantines == 3 and again.core.is_quarantined("a")
    again.close()
