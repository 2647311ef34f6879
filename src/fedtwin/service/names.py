"""What runs and devices are called in addresses."""

import re
from collections.abc import Iterable
from pathlib import Path

from fedtwin.runs import Run

EDGE = "edge"
"""The server's own thing."""


def names_of(run: Run) -> list[str]:
    """Every device's name: its own where the records have one that is not taken, otherwise ``device-7``."""
    devices = run.devices
    given = devices["name"].to_pylist() if "name" in devices.column_names else [None] * devices.num_rows
    taken, names = {EDGE}, []
    for number, name in enumerate(given):
        fits = bool(name) and name not in taken
        names.append(str(name) if fits else _free(f"device-{number}", taken | {str(other) for other in given if other}))
        taken.add(names[-1])
    return names


def slugs(folders: Iterable[Path]) -> dict[str, Path]:
    """A name for every folder, made of letters, digits, - and _; what is taken gets a number behind it."""
    found: dict[str, Path] = {}
    for folder in folders:
        text = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-") or "run"
        slug = text if text[0].isalpha() else f"run-{text.lstrip('_-')}"
        found[_free(slug, found)] = folder
    return found


def _free(name: str, taken: Iterable[str]) -> str:
    names, number, free = set(taken), 1, name
    while free in names:
        number += 1
        free = f"{name}-{number}"
    return free
