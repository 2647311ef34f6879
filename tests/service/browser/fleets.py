"""Fleets for the page: devices with positions, and names that nobody should believe."""

import csv
from pathlib import Path
from typing import Any

PLAYED_ROUNDS = 120
HOSTILE = (
    '<img src=x onerror="window.hacked=1">',
    '"><script>window.hacked=1</script>',
    "javascript:window.hacked=1",
    "a/b?c=d#e%2F..&f",
    "Ünï · 设备",
    "x" * 60,
)
NAMES = ("press", "lathe", "oven", "crane", *HOSTILE)
TRAINED: dict[str, Any] = {
    "run.rounds": 40,
    "run.engine": "readable",
    "fleet.devices": 6,
    "fleet.channels": 2,
    "learning.dataset": "digits",
    "learning.model": "linear",
    "learning.executor": "serial",
    "learning.evaluate_every_s": 2.0,
}


def write_fleet(path: Path) -> Path:
    """On a circle around the edge server."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["name", "x_m", "y_m", "samples", "cpu_hz"])
        for number, name in enumerate(NAMES):
            rows.writerow([name, 40 * number - 180, 150 - 37 * (number % 5), 70 + 3 * number, 1.5e9 + 1e8 * number])
    return path
