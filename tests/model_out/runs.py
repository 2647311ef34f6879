"""Small training runs on made-up sensor data, one per task, made once."""

from pathlib import Path

from fedtwin import load_config, simulate
from fedtwin.learning.data.sensors import Target, make_sensors
from fedtwin.sim import Result

TASKS: dict[str, Target] = {"classification": "classification", "regression": "regression", "multilabel": "multilabel"}


def trained(folder: Path, task: str, **more: object) -> Result:
    """The run in ``folder/run``; its data in ``folder/data``."""
    make_sensors(folder / "data", TASKS[task], samples=40)
    fixed: dict[str, object] = {
        "fleet.devices": 4,
        "fleet.channels": 2,
        "fleet.samples_min": 20,
        "fleet.samples_max": 30,
        "run.rounds": 24,
        "learning.task": task,
        "learning.dataset": str(folder / "data"),
        "learning.partition": "natural",
        "learning.model": "tcn",
        "learning.optimiser": "adam",
        "learning.learning_rate": 0.003,
        "learning.executor": "serial",
        "learning.evaluate_every_s": 2.0,
        "learning.average": "ema",
    }
    return simulate(load_config(overrides={**fixed, **more}), out=folder / "run")
