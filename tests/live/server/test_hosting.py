"""What is legal and of no use in a live run is said when it begins, and the run is there all the same."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedtwin.config import build_config
from fedtwin.errors import FedtwinWarning
from fedtwin.live.server import hosting

FLEET = {"fleet.devices": 3, "fleet.channels": 3, "run.rounds": 50, "live.time_scale": 1.0}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"learning.mixing": 0.5}, []),
        ({"learning.buffer_size": 3}, ["Without effect: learning.buffer_size = 3 is not of aggregation = 'fedasync'."]),
        ({"learning.most_refusals": 2}, ["learning.most_refusals = 2 is without effect: a live run leaves out who sends "]),
        ({"learning.aggregation": "fedbuff", "learning.buffer_size": 53}, ["learning.aggregation = 'fedbuff' can step"]),
        (
            {"learning.aggregation": "fedbuff", "learning.buffer_size": 54},
            ["learning.buffer_size = 54 is more than the 53 uploads that", "learning.aggregation = 'fedbuff' can step"],
        ),
        ({"learning.aggregation": "change"}, ["learning.aggregation = 'change' can step beyond what any device uploads, "]),
    ],
)
def test_what_is_of_no_use_is_told(tmp_path: Path, changes: dict[str, object], told: list[str]) -> None:
    initial = tmp_path / "initial.safetensors"
    save_file({"w": np.zeros(4, np.float32), "norm.running_var": np.ones(4, np.float32)}, initial)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", FedtwinWarning)
        run = hosting._begun(tmp_path / "run", build_config({}, {**FLEET, **changes}), "mine", initial)
    sentences = [str(one.message) for one in seen]
    assert len(sentences) == len(told) and all(map(str.startswith, sentences, told))
    assert (tmp_path / "run" / "ledger.jsonl").exists() and run.name == "mine"
    run.close()
