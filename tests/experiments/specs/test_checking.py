"""What is said about a configuration that is not run."""

from pathlib import Path

import numpy as np

from fedtwin.config import load_config
from fedtwin.experiments.specs.checking import check


def test_samples_that_a_fleet_would_share_are_no_matter_of_boards_that_bring_their_own(tmp_path: Path) -> None:
    x, y = np.arange(60 * 64, dtype=np.uint8).reshape(60, 8, 8), 2 * (np.arange(60) % 3)
    np.savez(tmp_path / "few.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    simulated = {"learning.dataset": str(tmp_path / "few.npz"), "fleet.devices": 20}
    shared, gaps = check(load_config(overrides=simulated))
    assert "held more than once; a smaller learning.owned_samples" in shared and "no image for" in gaps
    assert check(load_config(overrides={**simulated, "live.time_scale": 1.0})) == [gaps]
