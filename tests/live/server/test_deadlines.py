"""Uploads that waited at the broker while the edge server was away come first, however long that takes."""

import asyncio
import math
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedtwin.live.server.deadlines import Deadlines
from fedtwin.live.wire.real import CLOCK
from tests.live.run.test_live_run import begun, deliver, dispatch, weights


class Broker:
    """Answers at once, or not in time."""

    connected, answers = True, True

    async def flush(self, timeout_s: float) -> None:
        if not self.answers:
            raise TimeoutError(timeout_s)


def looked(deadlines: Deadlines) -> None:
    """One look, with the broker asked as it wants."""

    async def scene() -> None:
        deadlines._asked = asyncio.Event()  # of this loop
        asking = asyncio.create_task(deadlines.ask_the_broker_for_ever())
        deadlines.look()
        for _ in range(5):
            await asyncio.sleep(0)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking

    asyncio.run(scene())


def overdue(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any, Any]:
    """A task whose deadline and the margin after it have passed while nobody looked."""
    live = begun(folder, **{"live.late": "refuse", "live.deadline_margin_s": 1e-6})
    sent = dispatch(live)
    now_s = live.now_s() + 1e6
    monkeypatch.setattr(live, "now_s", lambda: now_s)
    context: Any = SimpleNamespace(
        run=live,
        core=live.core,
        heard={},
        is_silent=lambda _: False,
        dropped=[],
        sends_pulses=True,
        held_back=set(),
        heard_lately=list,
    )
    context.clock, context.transport = CLOCK, Broker()
    uploads: Any = SimpleNamespace(pulse_sent_s=-math.inf, forget=lambda _: None)
    return live, sent, Deadlines(context, uploads), uploads


def test_nothing_is_given_up_before_a_pulse_has_come_that_was_sent_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, sent, deadlines, uploads = overdue(tmp_path / "run", monkeypatch)
    uploads.pulse_sent_s = live.now_s() - 1.0  # it was on its way before
    deadlines.put_off()
    for _ in range(3):
        looked(deadlines)
    assert sent.token in live.core.open
    assert deliver(live, sent, weights(1.0)) is None, "it had waited at the broker, and is not late"
    live.close()


def test_what_has_not_come_by_then_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live, sent, deadlines, uploads = overdue(tmp_path / "run", monkeypatch)
    deadlines.put_off()
    uploads.pulse_sent_s = live.now_s()
    looked(deadlines)
    assert sent.token in live.core.given_up
    live.close()


def test_where_no_pulse_may_be_sent_the_margin_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live, sent, deadlines, _ = overdue(tmp_path / "run", monkeypatch)
    deadlines._context.sends_pulses = False
    deadlines.put_off()
    looked(deadlines)
    assert sent.token in live.core.given_up
    live.close()


def test_no_deadline_falls_while_the_broker_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noticed seconds later that nothing comes through: uploads may wait at the broker."""
    live, sent, deadlines, uploads = overdue(tmp_path / "run", monkeypatch)
    uploads.pulse_sent_s = live.now_s() - 1.0
    deadlines._context.transport.answers = False
    looked(deadlines)
    assert sent.token in live.core.open
    deadlines._context.transport.answers = True
    looked(deadlines)
    assert sent.token in live.core.open, "what waited there comes first"
    uploads.pulse_sent_s = live.now_s()
    looked(deadlines)
    assert sent.token in live.core.given_up
    live.close()
