"""What ``simulate`` returns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedtwin.config import load_config
from fedtwin.errors import FedtwinError
from fedtwin.sim import simulate


def test_the_weights_are_the_model_that_was_written(tmp_path: Path) -> None:
    config = load_config(overrides={"run.rounds": 20, "learning.executor": "serial"})
    result = simulate(config, out=tmp_path / "run")
    written = load_file(tmp_path / "run" / "model.safetensors")
    assert result.weights.keys() == written.keys() and len(written) == 6
    for name, tensor in result.weights.items():
        assert type(tensor) is np.ndarray and tensor.flags.owndata
        np.testing.assert_array_equal(tensor, written[name])


def test_a_run_that_trains_nothing_has_no_weights() -> None:
    assert simulate(load_config(overrides={"run.rounds": 20})).weights == {}


def test_tables_as_data_frames() -> None:
    result = simulate(load_config(overrides={"run.rounds": 20, "learning.executor": "serial"}))
    assert list(result.to_pandas()["round"]) == result.rounds["round"].to_pylist()
    assert len(result.to_pandas("devices")) == 30
    evaluations = result.to_pandas("evaluations")
    assert list(evaluations["test_accuracy"]) == [one.test_accuracy for one in result.evaluations]
    unknown: Any = "queues"
    with pytest.raises(FedtwinError, match="table = 'queues' is unknown: choose one of rounds, devices, evaluations"):
        result.to_pandas(unknown)


def test_without_pandas_a_data_frame_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    result = simulate(load_config(overrides={"run.rounds": 20}))

    def fail(_: object) -> None:
        raise ModuleNotFoundError("No module named 'pandas'")

    monkeypatch.setattr("fedtwin.sim.result.Result.rounds", property(fail))
    with pytest.raises(FedtwinError, match=r"needs pandas .*pip install pandas"):
        result.to_pandas()
