"""Boards with windows of their own, as processes: they learn numbers, one gets more samples, one joins late, and what
everybody normalises by stays the same.
"""

from pathlib import Path

import numpy as np
import pytest

from fedtwin.learning.data.sensors import make_sensors
from fedtwin.model_out.predicting import predict
from tests.live.plant import events_of, plant, until

SETTINGS = {
    "fleet__devices": 2, "fleet__channels": 2, "fleet__samples_min": 10, "fleet__samples_max": 200, "objective__max_time_s": 30,
    "objective__max_energy_j": 50, "learning__task": "regression", "learning__model": "tcn", "live__heartbeat_s": 0.5,
    "learning__optimiser": "adam", "learning__learning_rate": 0.003, "learning__evaluate_every_s": 1,
    "learning__local_epochs": 2, "learning__mixing": 0.3,
}  # fmt: skip
WITHOUT_A_MODEL_H = 28.9  # of lives from 0 to 100 hours


@pytest.mark.slow
def test_boards_learn_numbers_from_samples_that_grow(tmp_path: Path) -> None:
    *boards, test = make_sensors(tmp_path / "life", "regression", boards=3, samples=150)
    with plant(tmp_path) as fleet:
        common = ("edge", "edge", "--out", fleet.run, "--rounds", 1_000_000)
        settings = {**SETTINGS, "learning__dataset": test}
        named = [word for key, value in settings.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
        fleet.command(*common, *named)
        url = fleet.url()
        for name, data in zip(("b1", "b2"), boards, strict=False):
            fleet.device(name, url, "--data", data)
        gathered = fleet.wait_for("normalised")["normalisation"]
        assert len(gathered["mean"]) == 2 and len(gathered["target_mean"]) == 1
        fleet.wait_for("applied", count=5)
        with np.load(boards[0]) as arrays:
            x, y = (np.concatenate([arrays[name], arrays[name]])[:180] for name in ("x_train", "y_train"))
        np.savez(tmp_path / "grown.npz", x_train=x, y_train=y)
        (tmp_path / "grown.npz").replace(boards[0])
        assert fleet.wait_for("resized")["samples"] == 180
        fleet.device("b3", url, "--data", boards[2])
        fleet.wait_for("dispatched", lambda event: event["device"] == 2)
        fleet.wait_for("dispatched", lambda event: event["samples"] == 180)
        fleet.wait_for("applied", lambda event: event["device"] == 2, count=5)
        until(lambda: min(_judged(fleet.run)) < WITHOUT_A_MODEL_H - 4.0, "a model that is better than the mean life", 240.0)
        found = predict(fleet.run, str(test), which="best")
        assert found.test_metric == found.card.test_metric and found.card.normalisation == gathered
        assert len(events_of(fleet.run, "normalised")) == 1 and not events_of(fleet.run, "refused")
        assert {event["device"] for event in events_of(fleet.run, "applied")} == {0, 1, 2}


def _judged(run: Path) -> list[float]:
    return [float(event["test_metric"]) for event in events_of(run, "evaluated")] or [100.0]
