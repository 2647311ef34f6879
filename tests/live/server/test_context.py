"""Who is let back, and who is told of."""

from pathlib import Path
from typing import Any

import pytest

from fedtwin.live.run import events
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.edge import _log
from tests.live.run.test_live_run import begun, deliver, dispatch, weights
from tests.live.run.test_progress import starts_anew


def test_that_a_device_is_backed_off_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = begun(tmp_path / "run", **{"live.back_off_s": 1000.0})
    transport: Any = None
    context, name, failures = EdgeContext(live, transport), live.core.names[0], 0
    while failures < 2:
        sent = dispatch(live)
        if sent.device != 0:
            assert deliver(live, sent, weights(0.0)) is None
            continue
        failures += 1
        starts_anew(live, sent)
        if failures < 2:
            live.commit(events.StatusChanged(at_s=live.now_s(), device=0, status="idle"))
    for _ in range(5):
        context.alive(name)
    said = [record.__dict__["fields"] for record in caplog.records if record.getMessage().startswith("backed off")]
    assert len(said) == 1 and said[0]["device"] == name and 900.0 < said[0]["for_s"] <= 1000.0
    assert context.held_back == {name} and live.core.state.free.count(0) == 0
    live.release(name)
    context.alive(name)
    assert context.held_back == set() and live.core.state.free.count(0) == 1
    live.close()


def test_that_a_device_is_clipped_is_said_once_with_the_setting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = begun(tmp_path / "run")
    live.listeners.append(_log)
    for _ in range(5):
        live.refuse("a", "result", "share: 30 of 100 uploads are 3 times its fair share among 10 devices")
    said = [record.__dict__["fields"] for record in caplog.records if record.getMessage().startswith("uploads are clipped")]
    assert said == [{"device": "a", "setting": "live.influence_shares = 3"}]
    live.close()
