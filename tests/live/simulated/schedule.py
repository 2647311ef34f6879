"""One schedule of faults from its number: played, and held to what must be true afterwards."""

import asyncio
import json
import logging
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtwin.live.run import events
from fedtwin.live.run.ledger import LEDGER_NAME, read_events
from fedtwin.live.run.model import model_path
from fedtwin.live.run.state import State
from tests.live.chaos import check_log
from tests.live.simulated.disk import KilledError
from tests.live.simulated.faults import Schedule, drawn, strike
from tests.live.simulated.fleet import Fleet, Said, Supervised, listening
from tests.live.simulated.hostile import hostile_device
from tests.live.simulated.loop import run_virtually

ROUNDS = 30
RESUMES_S = 120.0
"""Uploads are mixed in again so long after the last fault has ended, at the latest."""
ENDS_S = 600.0
FEW_ROUNDS = 3


class BrokenPromiseError(AssertionError):
    """What was promised and did not hold."""


@dataclass
class Outcome:
    seed: int
    schedule: Schedule
    said: list[Said]
    resumed_after_s: float
    counts: dict[str, int]
    trouble: str | None = None


def folder_for_many() -> Path:
    """In memory where there is such a disk: thousands of runs are written and removed."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="fedtwin-simulated-", dir=shared if shared.is_dir() else None))


def play(seed: int, schedule: Schedule | None = None, *, level: int = logging.INFO, **settings: Any) -> Outcome:
    """The schedule of a seed, or one that is given."""
    schedule = schedule or drawn(seed)
    folder = folder_for_many()
    try:
        fleet = Fleet(folder, seed, devices=schedule.devices, rounds=ROUNDS, **settings)
        fleet.broker_is_ours = schedule.broker_is_ours
        if schedule.hostile:
            fleet.others.append(Supervised(fleet, "mallory", hostile_device))
        with listening(fleet.loop, level) as log:
            outcome = Outcome(seed, schedule, log.said, 0.0, {})
            try:
                outcome.resumed_after_s = run_virtually(_main(fleet, schedule), fleet.loop)
                outcome.counts = _check(fleet, schedule)
            except (AssertionError, RuntimeError) as error:
                outcome.trouble = f"{type(error).__name__}: {error}"
        return outcome
    finally:
        shutil.rmtree(folder)


async def _main(fleet: Fleet, schedule: Schedule) -> float:
    try:
        return await _played(fleet, schedule)
    finally:
        await fleet.stop()


async def _played(fleet: Fleet, schedule: Schedule) -> float:
    begun = fleet.loop.time()
    fleet.start()

    async def one(fault: Any) -> None:
        await asyncio.sleep(fault.at_s)
        await strike(fleet, fault)

    await asyncio.gather(*(one(fault) for fault in schedule.faults))
    ended_s = fleet.loop.time()

    played = max((event.round for _, event in fleet.happened if isinstance(event, events.Asked | events.Passed)), default=0)
    nearly_over = played > ROUNDS - FEW_ROUNDS

    def resumed() -> bool:
        since = [event for at_s, event in fleet.happened if at_s > ended_s]
        sent = {event.token for event in since if isinstance(event, events.Dispatched)}
        mixed = any(isinstance(event, events.Applied) and event.token in sent for event in since)
        return mixed or (fleet.finished and nearly_over)

    if not await fleet.until(resumed, RESUMES_S):
        raise BrokenPromiseError(
            f"no upload of a new task was mixed in within {RESUMES_S:g} s after the last fault, at {ended_s - begun:.1f} s"
        )
    resumed_after_s = fleet.loop.time() - ended_s
    if not await fleet.until(lambda: fleet.finished, ENDS_S):
        raise BrokenPromiseError(f"the run does not come to its end within {ENDS_S:g} s")
    return resumed_after_s


def _check(fleet: Fleet, schedule: Schedule) -> dict[str, int]:
    """Nothing lost or doubled, by the arithmetic of ``tests/live/chaos.py``; the ledger gives the state back."""
    log = [json.loads(line) for line in (fleet.folder / LEDGER_NAME).read_bytes().splitlines()]
    run = fleet.edge.life.run
    assert run is not None
    counts = check_log(log, model_path(fleet.folder / "models", run.core.version), _uploaded(fleet, schedule))
    if run.core.progress.given_up != counts["in_vain"]:
        raise BrokenPromiseError(f"{counts['in_vain']} rounds came to nothing, {run.core.progress.given_up} are counted so")
    replayed = State(fleet.config)
    for event in read_events(fleet.folder / LEDGER_NAME):
        replayed.apply(event)
    if replayed.snapshot() != run.core.state.snapshot():
        raise BrokenPromiseError("the ledger's replay is not the state the edge server had")
    for trouble in fleet.loop.troubles:
        error = trouble.get("exception")
        if error is not None and not isinstance(error, KilledError):
            raise BrokenPromiseError(f"nobody took care of {error!r} in {trouble.get('message')}")
    return counts


def _uploaded(fleet: Fleet, schedule: Schedule) -> set[str]:
    """Tokens whose result a device knows to be stored, before the run had its last upload, by a broker that loses nothing."""
    if any(fault.what in ("lost store", "deleted stream") for fault in schedule.faults):
        return set()
    last_s = max((at_s for at_s, event in fleet.happened if isinstance(event, events.Applied)), default=0.0)
    known = {key.removesuffix("-r") for key, at_s in fleet.stored.items() if key.endswith("-r") and at_s < last_s}
    return known & {event.token for _, event in fleet.happened if isinstance(event, events.Dispatched)}
