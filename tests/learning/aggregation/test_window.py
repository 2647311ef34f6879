"""The model is the mean of the last K uploads, whatever it was before."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.config import load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation import Upload, aggregation_of
from fedtwin.live.run import opening
from fedtwin.sim import resume, simulate
from fedtwin.testing import check_aggregator
from tests.live.run.test_trail import after, require_the_same

THREE: dict[str, Any] = {"learning.aggregation": "window", "learning.aggregation_settings.size": 3}


def test_it_is_the_mean_of_the_last_k_uploads() -> None:
    rule = aggregation_of(load_config(overrides={**THREE, "learning.average": "none"}))
    uploads = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    model = np.full(5, 100.0, np.float32)
    state = rule.init(model)
    for number, weights in enumerate(uploads):
        state, model = rule.apply(state, model, Upload(None, weights, number, 80.0, number, number))
        assert model == pytest.approx(uploads[max(0, number - 2) : number + 1].mean(axis=0), rel=1e-6)
        assert len(state) == min(3, number + 1) and model.dtype == np.float32


@pytest.mark.parametrize("size", [1, 4])
def test_it_keeps_its_word_for_any_k(size: int) -> None:
    check_aggregator("window", {"size": size})


@pytest.mark.parametrize("size", [0, 2.5, True, "three"])
def test_k_is_a_whole_number_from_1_on(size: Any) -> None:
    with pytest.raises(FedtwinError, match=r"learning\.aggregation_settings\.size = .* is not allowed: it must be"):
        aggregation_of(load_config(overrides={**THREE, "learning.aggregation_settings.size": size}))


def test_a_training_learns_by_it_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    base = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 60, "learning.evaluate_every_s": 5.0}
    config = load_config(overrides={**base, **THREE})
    whole = simulate(config, out=tmp_path / "whole")
    assert whole.evaluations[-1].test_loss < whole.evaluations[0].test_loss

    def stop(selections: int) -> None:
        if selections == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, out=tmp_path / "stopped", checkpoint_every_s=0.0, progress=stop)
    resume(tmp_path / "stopped")
    for name in ("evaluations.parquet", "model.safetensors"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize("uploads", [2, 5, 40])
def test_an_edge_server_has_its_window_back(tmp_path: Path, uploads: int) -> None:
    live = after(tmp_path / "run", uploads, THREE)
    again = opening.resume(tmp_path / "run")
    require_the_same(again, live)
    again.close()
