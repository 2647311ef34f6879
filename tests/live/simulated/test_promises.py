"""Promises that are broken are told, in ledgers that were changed by hand."""

from pathlib import Path
from typing import Any

import pytest

from tests.live.simulated.faults import Fault, Schedule
from tests.live.simulated.fleet import Fleet
from tests.live.simulated.promises import BrokenPromiseError, _every_task_has_ended, _uploaded

LOST = Schedule((Fault(1.0, "lost store", "broker", 1.0, 0.0),))


def line(kind: str, token: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "token": token, **more}


def test_a_task_of_which_nobody_says_what_became_is_missing() -> None:
    log = [line("dispatched", "a"), line("dispatched", "b"), line("dispatched", "c"), line("applied", "a")]
    _every_task_has_ended([*log, line("given-up", "b"), line("applied", "c")])
    with pytest.raises(BrokenPromiseError, match="what became of \\['b', 'c'\\]"):
        _every_task_has_ended(log)


def test_what_was_acknowledged_must_be_in_the_ledger_and_what_was_only_stored_where_nothing_is_lost(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1, devices=1)
    fleet.loop.close()
    fleet.broker.dealt_with = {"a-u", "a-r", "pulse"}
    fleet.stored = {"a-r": -1.0, "b-u": -1.0, "b-r": -1.0, "c-r": -1.0}
    log = [line("dispatched", token) for token in "abc"] + [line("given-up", "c", reason="failed: no model")]
    assert _uploaded(fleet, LOST, log) == {"a"}
    assert _uploaded(fleet, Schedule(()), log) == {"a", "b"}
