"""What must hold when a schedule has been played, whatever was in it."""

import json
import math
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from fedtwin.live.run import events
from fedtwin.live.run.ledger import LEDGER_NAME, lines_after, read_events
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.model import model_path
from fedtwin.live.run.state import State
from fedtwin.live.wire.protocol import Subjects
from tests.live.chaos import Ledger, check_log
from tests.live.simulated.disk import KilledError
from tests.live.simulated.faults import Schedule
from tests.live.simulated.fleet import Fleet
from tests.live.sync_check import check_rounds_log

LOSES_THE_STORE = ("lost store", "deleted stream")


class BrokenPromiseError(AssertionError):
    """What was promised and did not hold."""


def check(fleet: Fleet, schedule: Schedule) -> dict[str, int]:
    """Nothing lost or doubled, by the arithmetic of ``tests/live/chaos.py``; the ledger gives the state back."""
    run = fleet.finished_run
    assert run is not None
    lines = [*lines_after(run.folder / LEDGER_NAME, 0)]
    log: Ledger = [json.loads(line) for line in lines]
    uploaded = _uploaded(fleet, schedule, log)
    _every_task_has_ended(log)
    counts = _recomputed(fleet, schedule, run, log, uploaded)
    _replay_is_the_state(fleet, run)
    if schedule.standby == "stream":
        _ledger_is_at_the_broker(fleet, lines)
    if schedule.evaluator:
        counts["measured"] = _evaluated(run, log)
    _nothing_was_left_to_nobody(fleet)
    fleet.features["objects"] = fleet.broker.objects_put
    fleet.features["lost with the store and given up"] = len(_known_to_devices(fleet) & _tokens(log, "given-up") - uploaded)
    return counts


def _recomputed(fleet: Fleet, schedule: Schedule, run: LiveRun, log: Ledger, uploaded: set[str]) -> dict[str, int]:
    model = _path(run)
    if schedule.sync:
        return check_rounds_log(log, model, uploaded, fleet.config.fleet.channels)
    counts = check_log(log, model, uploaded)
    if run.core.progress.given_up != counts["in_vain"]:
        raise BrokenPromiseError(f"{counts['in_vain']} rounds came to nothing, {run.core.progress.given_up} are counted so")
    return counts


def _tokens(log: Ledger, *kinds: str) -> set[str]:
    return {event["token"] for event in log if event["kind"] in kinds and "token" in event}


def _every_task_has_ended(log: Ledger) -> None:
    """Mixed in, or given up and counted so: nothing is missing without a word, wherever it was lost."""
    if missing := _tokens(log, "dispatched") - _tokens(log, "applied", "given-up"):
        raise BrokenPromiseError(f"nobody says what became of {sorted(missing)}")


def _uploaded(fleet: Fleet, schedule: Schedule, log: Ledger) -> set[str]:
    """Tokens that must have been mixed in or refused: whose result the edge server has acknowledged; and where the broker loses
    nothing, whose result a device knows to be stored, before the run had its last upload.
    """
    lost_store = any(fault.what in LOSES_THE_STORE for fault in schedule.faults)
    if lost_store and schedule.standby == "stream" and fleet.features["taken over"]:
        return set()  # the ledger was in the store, and its copy on a machine that is gone
    known = {key.removesuffix("-r") for key in fleet.broker.dealt_with if key.endswith("-r")}
    if not lost_store:
        applied = _tokens(log, "applied")
        mixed = (at_s for at_s, event in fleet.happened if isinstance(event, events.Applied) and event.token in applied)
        last_s = max(mixed, default=0.0)
        known |= _known_to_devices(fleet, last_s)
    failed = {event["token"] for event in log if event["kind"] == "given-up" and event["reason"].startswith("failed: ")}
    return (known & _tokens(log, "dispatched")) - failed


def _known_to_devices(fleet: Fleet, until_s: float = math.inf) -> set[str]:
    """Tokens whose result a device knows to be stored by then."""
    return {key.removesuffix("-r") for key, at_s in fleet.stored.items() if key.endswith("-r") and at_s < until_s}


def _replay_is_the_state(fleet: Fleet, run: LiveRun) -> None:
    replayed = State(fleet.config)
    for event in read_events(run.folder / LEDGER_NAME):
        replayed.apply(event)
    if replayed.snapshot() != run.core.state.snapshot():
        raise BrokenPromiseError("the ledger's replay is not the state the edge server had")


def _ledger_is_at_the_broker(fleet: Fleet, lines: list[bytes]) -> None:
    """The same lines; and who was overtaken by another has never appended again."""
    tape = fleet.broker.on_disk.tapes.get(Subjects("main").ledger_tape)
    there = [] if tape is None else [entry.data for entry in tape.entries.values()]
    if there != lines:
        raise BrokenPromiseError(f"the broker has {len(there)} lines of the ledger, the folder {len(lines)}, or others")
    writers = fleet.broker.writers[Subjects("main").ledger_tape]
    if len(set(writers)) != len(writers):
        raise BrokenPromiseError(f"an edge server that was overtaken has written again: {[one.name for one in writers]}")


def _path(run: LiveRun) -> Path:
    return model_path(run.folder / "models", run.core.version)


def _evaluated(run: LiveRun, log: Ledger) -> int:
    """No model twice, also where the edge server was started anew, and the last one as it is, averaged and plain."""
    measured = [event for event in log if event["kind"] == "evaluated"]
    versions = [event["version"] for event in measured]
    if versions != sorted(set(versions)):
        raise BrokenPromiseError(f"models were evaluated twice, or out of order: {versions}")
    if not versions or versions[-1] != run.core.version:
        raise BrokenPromiseError(f"the final model {run.core.version} was not evaluated: {versions}")
    last, marks = measured[-1], load_file(_path(run))["marks"].sum()
    np.testing.assert_allclose(last["test_loss"], run.model.served.floats.sum(), rtol=1e-4)
    np.testing.assert_allclose(last.get("plain_test_loss", marks), marks, rtol=1e-4)
    return len(measured)


def _nothing_was_left_to_nobody(fleet: Fleet) -> None:
    for trouble in fleet.loop.troubles:
        error = trouble.get("exception")
        if error is not None and not isinstance(error, KilledError):
            raise BrokenPromiseError(f"nobody took care of {error!r} in {trouble.get('message')}")
