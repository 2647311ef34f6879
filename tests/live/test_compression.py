"""A fleet whose devices send compressed changes: they arrive as small as they should, and learn what whole models would."""

import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedtwin import live
from fedtwin.config import Config, LearningConfig, build_config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.compression import compressor_of
from fedtwin.live.wire.settings import shared_settings, taken_settings
from fedtwin.live.wire.tensors import read_model
from fedtwin.live.wire.updates import update_codec_of
from tests.live.plant import events_of, write_model

ROUNDS = 6


def test_changes_travel_from_devices_that_train_by_whatever_they_do(tmp_path: Path) -> None:
    """Every training adds 1 to one entry, which top-k sends exactly: the model is that of whole uploads."""
    settings: dict[str, object] = {
        "fleet.devices": 2,
        "fleet.channels": 1,
        "run.rounds": ROUNDS,
        "live.time_scale": 0.2,
        "live.max_change": 100,
    }
    settings |= {"learning.compress": "top-k", "radio.update_bits": "model", "learning.average": "none", "learning.mixing": 1.0}
    config = build_config({}, {**settings, "learning.staleness": "constant", "objective.max_time_s": 5.0})
    initial = write_model(tmp_path / "initial.safetensors")
    layout, start = read_model(initial.read_bytes(), "initial")
    codec = update_codec_of(config.learning, layout)
    assert codec is not None
    with live.local_broker(tmp_path / "broker") as broker, live.LocalFleet(tmp_path / "fleet") as fleet:
        for name in ("d0", "d1"):
            fleet.start(
                name, [sys.executable, "-W", "error", "-m", "tests.live.adding_device", name, broker.url, "mine", "0.0"]
            )
        place = live.Place([broker.url])
        served = live.serve(config, tmp_path / "run", run="mine", place=place, initial=initial, evaluator=False)
    uploads = events_of(tmp_path / "run", "applied")
    assert served.error is None and len(uploads) >= ROUNDS and not events_of(tmp_path / "run", "refused")
    assert {event["uploaded_bytes"] for event in uploads} == {codec.size}
    assert load_config(tmp_path / "run" / "config.toml").radio.update_bits == codec.compressor.bits
    found = np.concatenate([tensor.reshape(-1) for tensor in load_file(tmp_path / "run" / "model.safetensors").values()])
    assert found.sum() - start.floats.sum() == pytest.approx(len(uploads))


def test_what_was_left_out_of_a_run_is_not_sent_in_the_next_of_the_same_name_and_settings(tmp_path: Path) -> None:
    """Of every change the larger entry is sent, and the other one when it has grown: from the first upload on, in both runs."""
    settings: dict[str, object] = {"fleet.devices": 1, "fleet.channels": 1, "run.rounds": 4, "live.time_scale": 0.2}
    settings |= {"live.max_change": 100, "learning.compress": "top-k", "learning.average": "none", "learning.mixing": 1.0}
    config = build_config({}, {**settings, "learning.staleness": "constant", "objective.max_time_s": 5.0})
    initial = write_model(tmp_path / "initial.safetensors")
    assert config.learning is not None
    layout, start = read_model(initial.read_bytes(), "initial")
    compressor = compressor_of(config.learning, layout)
    assert compressor is not None
    change = np.zeros_like(start.floats)
    change[:2] = 3.0, 2.0
    with live.local_broker(tmp_path / "broker") as broker, live.LocalFleet(tmp_path / "fleet") as fleet:
        fleet.start(
            "d0",
            [sys.executable, "-W", "error", "-m", "tests.live.adding_device", "d0", broker.url, "mine", "0.0", "3.0", "2.0"],
        )
        for folder in ("first", "second"):
            served = live.serve(
                config, tmp_path / folder, run="mine", place=live.Place([broker.url]), initial=initial, evaluator=False
            )
            assert served.error is None
            model, left_out = start, None
            for _ in events_of(tmp_path / folder, "applied"):
                sent = compressor.send(model, model._replace(floats=model.floats + change), left_out)
                model, left_out = compressor.receive(model, sent.parts), sent.left_out
            found = load_file(tmp_path / folder / "model.safetensors")["layer.weight"]
            assert np.allclose(found, model.floats, atol=1e-5) and np.count_nonzero(found != start.floats) == 2


def test_a_device_hears_of_compression_only_where_there_is_some() -> None:
    """One of an earlier version joins a run without, and refuses one with it, as every setting it does not know."""
    assert not {"compress", "top_k", "error_feedback"} & shared_settings(Config(learning=LearningConfig()))["learning"].keys()
    told = shared_settings(Config(learning=LearningConfig(compress="top-k", top_k=0.1)))
    assert told["learning"]["compress"] == "top-k" and told["learning"]["top_k"] == 0.1
    assert taken_settings(told).learning == LearningConfig(compress="top-k", top_k=0.1)
    told["learning"]["compress"] = "of a later version"
    with pytest.raises(FedtwinError, match=r"^The run has settings that fedtwin \S+ does not take: .*learning.compress"):
        taken_settings(told)


def test_bits_of_a_model_need_a_learning_section(tmp_path: Path) -> None:
    initial = write_model(tmp_path / "initial.safetensors")
    config = build_config({}, {"radio.update_bits": "model"})
    with pytest.raises(FedtwinError, match=r"^radio.update_bits = 'model' needs a \[learning\] section"):
        live.serve(config, tmp_path / "run", initial=initial)
    assert not (tmp_path / "run").exists()
