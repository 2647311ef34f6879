"""One schedule of faults from its number: played, and held to what must be true afterwards."""

import asyncio
import logging
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedtwin.live.run import events
from tests.live.simulated.conditions import conditions
from tests.live.simulated.faults import Schedule, drawn, strike
from tests.live.simulated.fleet import Fleet
from tests.live.simulated.hostile import hostile_device
from tests.live.simulated.life import Supervised
from tests.live.simulated.loop import run_virtually
from tests.live.simulated.promises import BrokenPromiseError, check
from tests.live.simulated.said import Said, listening

ROUNDS = 30
RESUMES_S = 120.0
"""Uploads are mixed in again so long after the last fault has ended, at the latest."""
ENDS_S = 600.0
FEW_ROUNDS = 3
SYNC, TIMEOUT = {"policy.name": "Sy-fairness"}, {"run.sync_timeout_s": 0.5}


@dataclass
class Outcome:
    seed: int
    schedule: Schedule
    said: list[Said]
    resumed_after_s: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    features: Counter[str] = field(default_factory=Counter)
    """What came about, and how often."""
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
        fleet = _fleet(folder, seed, schedule, settings)
        with conditions(schedule), listening(fleet.loop, level) as log:
            outcome = Outcome(seed, schedule, log.said, features=fleet.features)
            try:
                outcome.resumed_after_s = run_virtually(_main(fleet, schedule), fleet.loop)
                outcome.counts = check(fleet, schedule)
            except (AssertionError, RuntimeError) as error:
                outcome.trouble = f"{type(error).__name__}: {error}"
        return outcome
    finally:
        shutil.rmtree(folder)


def _fleet(folder: Path, seed: int, schedule: Schedule, settings: dict[str, Any]) -> Fleet:
    fleet = Fleet(
        folder,
        seed,
        devices=schedule.devices,
        rounds=ROUNDS,
        standby=schedule.standby,
        evaluator=schedule.evaluator,
        **({**(SYNC if schedule.sync else {}), **(TIMEOUT if schedule.timeout else {}), **settings}),
    )
    fleet.broker_is_ours = schedule.broker_is_ours
    if schedule.hostile:
        fleet.others.append(Supervised(fleet, "mallory", hostile_device))
    return fleet


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

    nearly_over = _played_so_far(fleet, schedule) > ROUNDS - FEW_ROUNDS

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


def _played_so_far(fleet: Fleet, schedule: Schedule) -> int:
    """Rounds, or where they are synchronous selections, of those that ``run.rounds`` counts."""
    if schedule.sync:
        return sum(isinstance(event, events.Dispatched) for _, event in fleet.happened)
    return max((event.round for _, event in fleet.happened if isinstance(event, events.Asked | events.Passed)), default=0)
