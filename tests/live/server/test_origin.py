"""A run that begins from another one has its model, its normalisation and its settings, as far as none are given."""

from pathlib import Path

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.live.run import events
from fedtwin.live.server.origin import begin_from
from fedtwin.live.wire.tensors import read_model
from tests.live.run.test_live_run import begun, deliver, dispatch, weights


def test_a_run_begins_from_a_live_one_that_is_not_finished(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    live = begun(tmp_path / "run", **{"policy.v": 7.0, "live.limits_from_fleet": ["max_time_s", "max_energy_j"]})
    normalisation = {"mean": [1.0], "std": [2.0]}
    live.commit(events.Normalised(at_s=live.now_s(), normalisation=normalisation, names=["a"]))
    assert deliver(live, dispatch(live), weights(1.0)) is None
    live.change("learning.mixing", 0.25)
    caplog.set_level("INFO", logger="fedtwin.live")
    config, model = begin_from(live.folder, {"run.rounds": 9})
    assert config.run.rounds == 9 and config.policy.v == 7.0
    assert config.learning is not None and config.learning.mixing == 0.25 and config.learning.normalisation == normalisation
    assert read_model(model.read_bytes(), "")[1].floats.tolist() == live.model.weights.floats.tolist() != [0.0] * 4
    said = caplog.records[-1].__dict__["fields"]["taken"]
    assert said == "model-000000000001.safetensors, its settings but for run.rounds, its normalisation"
    other, _ = begin_from(live.folder, {"learning.normalisation": {"mean": [0.0], "std": [1.0]}})
    assert other.learning is not None and other.learning.normalisation == {"mean": [0.0], "std": [1.0]}
    assert other.live is not None and other.live.limits_from_fleet == ["max_time_s", "max_energy_j"]
    tight, _ = begin_from(live.folder, {"objective.max_time_s": 2.0})
    assert tight.live is not None and tight.live.limits_from_fleet == ["max_energy_j"]
    live.close()


def test_what_is_no_run_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"is not the folder of a run: it has no config\.toml"):
        begin_from(tmp_path)
    (tmp_path / "config.toml").write_text("", encoding="utf-8")
    with pytest.raises(FedtwinError, match="has no model"):
        begin_from(tmp_path)
