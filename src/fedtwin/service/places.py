"""Where the devices are, as far as the run's files say."""

import csv
import math
from pathlib import Path
from typing import Any

from fedtwin.files import plain_file
from fedtwin.runs import Run
from fedtwin.service.telling import numbers


def places(run: Run) -> dict[str, Any]:
    """Positions where their owner gave them, distances where only these are known; null is what nobody knows."""
    distances: list[float] = run.devices["distance_m"].to_numpy().tolist()
    positions = _positions(run, len(distances))
    x_m, y_m = positions if positions is not None else ([None] * len(distances),) * 2
    known = "position" if positions else "distance" if any(map(math.isfinite, distances)) else "none"
    return {"x_m": x_m, "y_m": y_m, "distance_m": numbers(distances), "known": known}


def has_positions(run: Run) -> bool:
    return _positions(run, run.config.fleet.devices) is not None


def _positions(run: Run, devices: int) -> tuple[list[float], list[float]] | None:
    """The columns ``x_m`` and ``y_m`` of the owner's file."""
    if run.config.fleet.file is None:
        return None
    try:
        with plain_file(Path(run.config.fleet.file)).open(encoding="utf-8-sig", newline="") as file:
            rows = [{(key or "").strip(): value for key, value in row.items()} for row in csv.DictReader(file)]
        found = [float(row["x_m"]) for row in rows], [float(row["y_m"]) for row in rows]
    except (OSError, csv.Error, LookupError, TypeError, ValueError):
        return None
    return found if len(rows) == devices else None
