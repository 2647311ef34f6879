"""Small runs to ask about, by the readable engine: compiled code would cost more than it saves."""

from pathlib import Path
from typing import Any

from fedtwin import Run, open_run, simulate

SMALL = {"fleet.devices": 8, "fleet.channels": 3, "run.rounds": 120, "run.engine": "readable"}


def played(folder: Path, **changes: Any) -> Run:
    """``policy__name="random"`` is ``policy.name = "random"``."""
    simulate({**SMALL, **{name.replace("__", "."): value for name, value in changes.items()}}, out=folder)
    return open_run(folder)


def last_round(run: Run) -> int:
    return int(run.rounds["round"].to_numpy().max(initial=0))
