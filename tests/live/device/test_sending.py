"""What a device sends, whoever has trained the model, and what it keeps for the next time."""

import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from fedtwin.config import Config, LearningConfig, replace_settings
from fedtwin.learning.compression import compressor_of
from fedtwin.learning.layout import Floats, Weights, layout_of
from fedtwin.live.device.calibration import trained_by, try_training
from fedtwin.live.device.sending import Sending
from fedtwin.live.device.trainers import CommandTrainer, TrainingError
from fedtwin.live.wire.tensors import Codec
from fedtwin.live.wire.updates import UpdateCodec, update_codec_of

LAYOUT = layout_of({"w": ((20,), False), "steps": ((), True)})
CODEC = Codec(LAYOUT)
START = Weights(np.linspace(0.0, 2.0, 20, dtype=np.float32), np.array([1], np.int64))
SLOPE = np.linspace(-0.3, 0.7, 20, dtype=np.float32)
COMMAND = """
import os
import numpy as np
from safetensors.numpy import load_file, save_file
model = load_file(os.environ["FEDTWIN_MODEL"])
save_file({**model, "w": model["w"] + np.linspace(-0.3, 0.7, 20, dtype=np.float32)}, os.environ["FEDTWIN_UPDATE"])
"""


def config_of(compress: str, **more: object) -> Config:
    return Config(learning=LearningConfig.model_validate({"compress": compress, **more}))


def codec_of(config: Config) -> UpdateCodec:
    codec = update_codec_of(config.learning, LAYOUT)
    assert codec is not None
    return codec


def trained(change: Floats = SLOPE) -> bytes:
    return CODEC.encode(Weights(START.floats + change, START.counters + 3))


def test_whole_models_are_sent_as_they_are() -> None:
    for config in (Config(), config_of("none")):
        sending = Sending(config)
        assert sending.packed(b"model", b"trained") == (b"trained", None) and sending.size_of(b"trained") == 7


@pytest.mark.parametrize("compress", ["float16", "int8", "top-k"])
def test_the_change_is_what_the_edge_server_adds(compress: str) -> None:
    config = config_of(compress)
    packed = Sending(config).packed(CODEC.encode(START), trained())
    found = codec_of(config).decode(packed.body, START)
    assert len(packed.body) == codec_of(config).size == Sending(config).size_of(CODEC.encode(START))
    assert found.counters.tolist() == [4]
    wrong = np.abs(found.floats - START.floats - SLOPE)
    assert wrong.max() < {"float16": 1e-3, "int8": 0.004, "top-k": 0.69}[compress]
    assert (compress != "top-k") or np.flatnonzero(found.floats != START.floats).tolist() == [19]


def test_what_is_left_out_is_kept_when_the_broker_has_the_rest() -> None:
    config = config_of("top-k")
    assert config.learning is not None
    sending, by_hand = Sending(config), compressor_of(config.learning, LAYOUT)
    assert by_hand is not None
    model, first = CODEC.encode(START), by_hand.send(START, CODEC.decode(trained()))
    packed = sending.packed(model, trained())
    assert sending.packed(model, trained()).body == packed.body, "nothing is kept before it was sent"
    sending.sent(packed)
    second = by_hand.send(START, CODEC.decode(trained()), first.left_out)
    assert sending.packed(model, trained()).body == codec_of(config).encode(second.parts) != packed.body


def test_without_error_feedback_every_upload_is_the_first() -> None:
    sending, model = Sending(config_of("int8", error_feedback=False)), CODEC.encode(START)
    packed = sending.packed(model, trained())
    sending.sent(packed)
    assert sending.packed(model, trained()).body == packed.body


@pytest.mark.parametrize("compress", ["none", "int8", "top-k"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_training_that_has_diverged_is_a_reason_and_no_upload(compress: str, value: float) -> None:
    sending, model = Sending(config_of(compress)), CODEC.encode(START)
    change = SLOPE.copy()
    change[7] = value
    with pytest.raises(TrainingError, match=r"^the trained weights are not all finite: its learning rate may be too large$"):
        sending.packed(model, trained(change))
    assert sending.packed(model, trained()).body == Sending(config_of(compress)).packed(model, trained()).body


def test_an_update_that_is_not_the_models_is_a_reason() -> None:
    with pytest.raises(TrainingError, match=r"^the update does not fit the model: "):
        Sending(config_of("int8")).packed(CODEC.encode(START), b"nothing")


def test_what_a_command_has_trained_is_compressed_for_it(tmp_path: Path) -> None:
    """And a board that tries it out plans with the bytes that are sent."""
    (tmp_path / "train.py").write_text(COMMAND, encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(CODEC.encode(START))
    trainer = CommandTrainer(f"{shlex.quote(sys.executable)} {tmp_path / 'train.py'}", 40, trial=tmp_path / "model.safetensors")
    config = config_of("top-k")
    trainer.prepare(config)
    update = trainer.train(CODEC.encode(START), 1)
    found = codec_of(config).decode(Sending(config).packed(CODEC.encode(START), update.body).body, START)
    assert np.flatnonzero(found.floats != START.floats).tolist() == [19]
    clock = iter(np.arange(100.0))
    tried = try_training(trainer, config, 40, 1e9, lambda: float(next(clock)))
    assert tried.update_bytes == codec_of(config).size != len(update.body) and tried.fits(config)
    assert not tried.fits(config_of("none")) and trained_by(config).endswith("sent as top-k of 0.01")


def test_what_is_left_out_outlives_a_setting_that_is_changed_in_the_run_and_not_the_run() -> None:
    config, one, other = config_of("top-k"), "1" * 64, "2" * 64
    before, model = Sending(config, one), CODEC.encode(START)
    packed = before.packed(model, trained())
    before.sent(packed)
    goes_on, first = before.packed(model, trained()).body, packed.body
    changed = replace_settings(config, {"learning.learning_rate": 0.5})
    assert before.under(changed, one).packed(model, trained()).body == goes_on != first
    for identity in (other, None):
        assert before.under(config, identity).packed(model, trained()).body == first
    unnamed = Sending(config)
    unnamed.sent(packed)
    assert unnamed.under(config, None).packed(model, trained()).body == first
