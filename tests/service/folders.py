"""Folders to serve: ``python -m tests.service.folders DIR`` makes one of every kind in DIR."""

import sys
from pathlib import Path
from typing import Any

import fedtwin

PLAIN: dict[str, Any] = {"run.rounds": 2000}
DIGITS: dict[str, Any] = {
    "run.rounds": 400,
    "learning.dataset": "digits",
    "learning.model": "linear",
    "learning.executor": "serial",
    "learning.evaluate_every_s": 2.0,
}


def simulated(folder: Path, **settings: Any) -> Path:
    """A finished simulation of 30 devices; ``run__rounds=50`` is ``run.rounds = 50``."""
    overrides = {**PLAIN, **{name.replace("__", "."): value for name, value in settings.items()}}
    fedtwin.simulate(fedtwin.load_config(overrides=overrides), out=folder)
    return folder


if __name__ == "__main__":
    place = Path(sys.argv[1])
    simulated(place / "plain")
    fedtwin.simulate(fedtwin.load_config(overrides=DIGITS), out=place / "digits")
