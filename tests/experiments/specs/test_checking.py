"""What is said about a configuration that is not run."""

from pathlib import Path

import numpy as np
import pytest

from fedtwin.config import load_config
from fedtwin.errors import FedtwinWarning
from fedtwin.experiments.specs.checking import check
from fedtwin.sim import simulate


def test_samples_that_a_fleet_would_share_are_no_matter_of_boards_that_bring_their_own(tmp_path: Path) -> None:
    x, y = np.arange(60 * 64, dtype=np.uint8).reshape(60, 8, 8), 2 * (np.arange(60) % 3)
    np.savez(tmp_path / "few.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    simulated = {"learning.dataset": str(tmp_path / "few.npz"), "fleet.devices": 20}
    shared, gaps = check(load_config(overrides=simulated))
    assert "held more than once; a smaller learning.owned_samples" in shared and "no image for" in gaps
    assert check(load_config(overrides={**simulated, "live.time_scale": 1.0})) == [gaps]


def test_what_a_file_of_devices_stands_in_place_of_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("distance_m,samples,cpu_hz,max_power_w\n50,80,1e9,0.5\n60,80,1e9,0.5\n", encoding="utf-8")
    fleet = {"fleet.file": str(file), "fleet.channels": 1, "run.rounds": 3, "objective.min_mean_samples": 0.0}
    assert check(load_config(overrides=fleet)) == []
    ignored = load_config(overrides={**fleet, "fleet.samples_min": 10, "radio.max_power_w": 1e-4, "compute.cpu_hz_max": 9e9})
    (sentence,) = check(ignored)
    assert sentence == (
        "fleet.samples_min = 10, compute.cpu_hz_max = 9e+09, radio.max_power_w = 0.0001: without effect, "
        "the devices of fleet.file have their own."
    )
    with pytest.warns(FedtwinWarning, match="without effect"):
        simulate(ignored)


def test_what_a_range_stands_in_place_of_is_told() -> None:
    ranges = {"fleet.max_power_w": [0.5, 1.0], "fleet.cycles_per_sample": [1e6, 2e6]}
    assert check(load_config(overrides=ranges)) == []
    ignored = {**ranges, "radio.max_power_w": 0.25, "compute.cycles_per_sample": 3e6, "radio.update_bits": 4e6}
    assert check(load_config(overrides=ignored)) == [
        "radio.max_power_w = 0.25, compute.cycles_per_sample = 3e+06: without effect, the devices drawn by a range of [fleet] "
        "have their own."
    ]
