"""The centralised training that the headline figure is held against."""

import numpy as np
import pytest
from benchmarks.centralised import sample_passes, train_centrally

from fedtwin.config import load_config
from fedtwin.sim import simulate

SETTINGS = {
    "learning.model": "linear",
    "learning.optimiser": "momentum",
    "learning.rate_schedule": "cosine",
    "learning.clip_norm": 2.0,
    "learning.augment": "none",
    "learning.executor": "serial",
    "run.rounds": 60,
}


def test_it_passes_over_as_many_samples_as_the_devices_of_the_run_and_learns() -> None:
    config = load_config(overrides=SETTINGS)
    passes = sample_passes(config)
    assert passes == int(np.sum(simulate(config).rounds["samples"].to_numpy()))
    found = train_centrally(config, passes, "cpu")
    assert (found.passes, found.steps) == (passes, -(-passes // 32))
    assert found.test_accuracy > 0.8 and found.test_accuracy == train_centrally(config, passes, "cpu").test_accuracy


def test_images_are_cropped_where_those_of_the_run_are() -> None:
    plain, cropped = (load_config(overrides={**SETTINGS, "learning.augment": how}) for how in ("none", "crop-flip"))
    assert train_centrally(cropped, 640, "cpu").test_accuracy != pytest.approx(train_centrally(plain, 640, "cpu").test_accuracy)
