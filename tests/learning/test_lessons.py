"""Local training as people do it, in whole runs: the same bits by every executor of the CPU, after a resume, on a board."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.config import Config, LearningConfig, build_config, config_hash
from fedtwin.errors import FedtwinError
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors import make_workload
from fedtwin.learning.executors.cuda import Hub
from fedtwin.learning.executors.cuda_trainers import StackedTrainer, make_trainer
from fedtwin.learning.lessons import lesson_of
from fedtwin.learning.probe import PLAIN_SGD, Probe
from fedtwin.learning.shares import shares_of
from fedtwin.live.device.torch_trainer import TorchTrainer
from fedtwin.live.wire.settings import OF_LATER_VERSIONS, shared_settings, taken_settings
from fedtwin.live.wire.tensors import Codec
from fedtwin.sim import Result, resume, simulate
from tests.conftest import mostly_slow
from tests.learning.test_training_run import FOLDER, model_of

USUAL = {
    "learning.optimiser": "momentum",
    "learning.weight_decay": 1e-3,
    "learning.clip_norm": 1.0,
    "learning.rate_schedule": "cosine",
    "learning.rate_warmup_rounds": 3,
    "learning.augment": "crop-flip",
}
ADAM = {**USUAL, "learning.optimiser": "adam", "learning.learning_rate": 0.003, "learning.rate_schedule": "linear"}


def training(**changes: Any) -> Config:
    base = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 40, "learning.evaluate_every_s": 1.0}
    return build_config({}, {**base, **changes})


def weights_of(result: Result) -> np.ndarray:
    assert result.weights is not None
    return np.concatenate([tensor.ravel() for tensor in result.weights.values()])


@pytest.mark.parametrize("settings", mostly_slow([USUAL, ADAM], USUAL), ids=["momentum", "adam"])
def test_executors_agree_to_the_last_bit(tmp_path: Path, settings: dict[str, Any]) -> None:
    results = [
        simulate(training(**settings, **{"learning.executor": executor, "learning.workers": 1}), out=tmp_path / executor)
        for executor in ("serial", "processes")
    ]
    assert model_of(results[0]) == model_of(results[1])
    assert results[0].evaluations == results[1].evaluations


@pytest.mark.parametrize("settings", [USUAL, ADAM], ids=["momentum", "adam"])
def test_the_trainer_of_a_gpu_is_told_the_same(settings: dict[str, Any]) -> None:
    """On the CPU here: all rates and crops of a run reach it, so that only rounding differs."""
    config = training(**settings)
    data = load_dataset("digits")
    trainer = make_trainer(make_workload(config, data.shape, data.outputs), "float32", "cpu")
    assert isinstance(trainer, StackedTrainer)
    stacked, serial = (weights_of(simulate(config, executor=one)) for one in (Hub(trainer).executor(), None))
    start = weights_of(simulate(training(**{**settings, "run.rounds": 4, "learning.learning_rate": 1e-30})))
    assert np.linalg.norm(stacked - serial) < 1e-2 * np.linalg.norm(serial - start)


@pytest.mark.parametrize("settings", mostly_slow([USUAL, ADAM], USUAL), ids=["momentum", "adam"])
def test_a_stopped_run_resumes_bit_for_bit(tmp_path: Path, settings: dict[str, Any]) -> None:
    config = training(**settings)
    simulate(config, out=tmp_path / "whole")

    def stop(selections: int) -> None:
        if selections == 23:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, out=tmp_path / "stopped", checkpoint_every_s=0.0, progress=stop)
    resume(tmp_path / "stopped")
    for name in FOLDER:
        if (tmp_path / "whole" / name).exists():
            assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_rate_that_falls_and_crops_are_other_numbers_and_another_hash() -> None:
    found = {name: training(**{name: value}) for name, value in USUAL.items() if "warmup" not in name}
    plain = training()
    assert len({config_hash(config) for config in [plain, *found.values()]}) == len(found) + 1
    was = weights_of(simulate(plain))
    for name in ("learning.rate_schedule", "learning.augment", "learning.weight_decay", "learning.clip_norm"):
        assert not np.array_equal(weights_of(simulate(found[name])), was), name


@pytest.mark.parametrize("settings", [{}, USUAL, ADAM], ids=["plain", "momentum", "adam"])
def test_a_board_trains_as_the_simulator_does(settings: dict[str, Any]) -> None:
    config = training(**settings)
    board = TorchTrainer("press-1", None, None, 2)
    samples = board.prepare(taken_settings(shared_settings(config)))
    data = load_dataset("digits")
    workload = make_workload(config, data.shape, data.outputs)
    (layout, start), trainer, share = workload.initial(), workload.trainer(), shares_of(config, data)[2]
    for round_ in (1, 17, 40):
        expected = trainer.train(start, lesson_of(config, share, 2, round_, samples))
        found = board.train(Codec(layout).encode(start), round_)
        assert found.body == Codec(layout).encode(expected.weights) and found.train_loss == expected.train_loss


def test_devices_of_earlier_versions_get_what_they_know_and_refuse_what_they_do_not() -> None:
    plain, usual = (shared_settings(training(**settings))["learning"] for settings in ({}, USUAL))
    assert not set(OF_LATER_VERSIONS) & set(plain)
    assert {name.removeprefix("learning.") for name in USUAL} - {"optimiser"} == set(OF_LATER_VERSIONS) & set(usual)
    assert set(OF_LATER_VERSIONS) <= set(LearningConfig.model_fields)
    later = shared_settings(training())
    later["learning"]["gravity"] = 9.81
    with pytest.raises(FedtwinError, match=r"^The run has settings that fedtwin .* does not take: .*learning\.gravity"):
        taken_settings(later)


def test_only_images_are_cropped(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(600, 5))
    labels = (rows[:, 0] > 0).astype(int)
    np.savez(tmp_path / "rows.npz", x_train=rows, y_train=labels, x_test=rows[:9], y_test=labels[:9])
    config = training(**{"learning.dataset": str(tmp_path / "rows.npz"), "learning.augment": "crop-flip"})
    with pytest.raises(FedtwinError, match=r"^learning\.augment = 'crop-flip' is of images, and samples of shape \(5,\)"):
        simulate(config)


@pytest.mark.parametrize("setting", PLAIN_SGD)
def test_the_theorem_is_of_plain_sgd(setting: str) -> None:
    value = {**USUAL, "learning.rate_warmup_rounds": 3, "learning.compress": "int8"}[f"learning.{setting}"]
    config, data = training(**{f"learning.{setting}": value}), load_dataset("digits")
    with pytest.raises(FedtwinError, match=rf"^learning\.{setting} = .*: Theorem 1 is of SGD"):
        Probe(make_workload(config, data.shape, data.outputs))
