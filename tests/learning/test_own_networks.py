"""A user's own network: whatever it does with its tensors, every way to compute it gives the same, or it is refused by name."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedtwin.config import Config, LearningConfig, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning import elsewhere
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors import make_workload
from fedtwin.learning.executors.cuda import Hub
from fedtwin.learning.executors.cuda_one_by_one import OneByOneTrainer
from fedtwin.learning.executors.cuda_trainers import make_trainer
from fedtwin.learning.learner import Learner
from fedtwin.live.device.torch_trainer import TorchTrainer
from fedtwin.live.server.evaluator import initial_model
from fedtwin.sim import resume, simulate
from tests.conftest import mostly_slow
from tests.learning.small_runs import SMALL

NETS = "tests.learning.own_networks"
DIGITS = load_dataset("digits")
WORK = ["rebinds", "clips", "tied", "frozen", "frozen_sequence", "lazy"]
FILES = ("rounds.parquet", "evaluations.parquet", "model.safetensors")


@pytest.fixture(autouse=True)
def no_second_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """``test_elsewhere`` starts one; here it would be one more for every network."""
    monkeypatch.setattr(elsewhere, "_fingerprint_elsewhere", lambda workload: workload.fingerprint())


def training(name: str, **changes: Any) -> Config:
    own = {"learning.model": f"{NETS}:{name}", "learning.batch_size": 16, "learning.evaluate_every_s": 1.0}
    return load_config(overrides={**SMALL, **own, "learning.executor": "serial", **changes})


@pytest.mark.parametrize("name", mostly_slow(WORK, "rebinds", "tied"))
def test_serial_processes_and_resumed_runs_are_one_run(tmp_path: Path, name: str) -> None:
    serial = simulate(training(name), out=tmp_path / "serial")
    simulate(training(name, **{"learning.executor": "processes", "learning.workers": 2}), out=tmp_path / "processes")

    def stop(selections: int) -> None:
        if selections == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(training(name), out=tmp_path / "resumed", checkpoint_every_s=0.0, progress=stop)
    resume(tmp_path / "resumed")
    for other in ("processes", "resumed"):
        for file in FILES:
            assert (tmp_path / other / file).read_bytes() == (tmp_path / "serial" / file).read_bytes(), (other, file)
    saved = load_file(tmp_path / "serial" / "model.safetensors")
    assert loss_of(name, saved) == pytest.approx(serial.summary.test_loss, rel=1e-6), "the saved model is the evaluated one"


def loss_of(name: str, saved: dict[str, np.ndarray]) -> float:
    """By plain PyTorch, from the file."""
    import torch

    from fedtwin.learning.local import Images
    from fedtwin.learning.models import build_model

    network = build_model(f"{NETS}:{name}", DIGITS.shape, 10, 0)
    network.load_state_dict({key: torch.from_numpy(value) for key, value in saved.items()}, strict=name != "tied")
    network.eval()
    images = Images(DIGITS)
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(network(images.normalised(images.x_test)), images.y_test))


def test_what_a_network_binds_anew_is_in_the_saved_model(tmp_path: Path) -> None:
    simulate(training("rebinds"), out=tmp_path / "run")
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert np.abs(saved["centre"][saved["mask"] > 0]).min() > 0 and saved["seen"] == 1 and saved["level"].tolist()[0] >= 4
    assert saved["mask"].tolist() == [0, 1, 1] * 4


def test_frozen_parameters_stay_and_tied_ones_are_one(tmp_path: Path) -> None:
    for name in ("frozen", "frozen_sequence"):
        config = training(name)
        workload = make_workload(config, DIGITS.shape, 10)
        layout, initial = workload.initial()
        simulate(config, out=tmp_path / name)
        saved, begun = load_file(tmp_path / name / "model.safetensors"), layout.unpack(initial)
        still = {key for key in begun if np.allclose(saved[key], begun[key], rtol=1e-5, atol=0)}
        assert still == {key for key in begun if key.startswith(("features", "1."))}
    simulate(training("tied"), out=tmp_path / "tied")
    assert set(load_file(tmp_path / "tied" / "model.safetensors")) == {
        "there.weight", "last.weight", "last.bias", "scale"
    }  # fmt: skip


@pytest.mark.parametrize("name", WORK)
def test_the_gpu_trains_them_alike(name: str) -> None:
    """Its trainer, which runs here on the CPU."""
    config = training(name)
    workload = make_workload(config, DIGITS.shape, 10)
    trainer = make_trainer(workload, "float32", "cpu")
    assert isinstance(trainer, OneByOneTrainer)
    found, expected = simulate(config, executor=Hub(trainer).executor()), simulate(config)
    assert found.summary.test_loss == pytest.approx(expected.summary.test_loss, rel=1e-5)
    losses = [result.rounds["train_loss"].to_numpy() for result in (found, expected)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("float64_buffer", "the buffer extra is torch.float64"),
        ("bfloat16_buffer", "the buffer extra is torch.bfloat16"),
        ("complex_buffer", "the buffer extra is torch.complex64"),
        ("half_parameters", "the parameter last.weight is torch.bfloat16"),
        ("lazy_unused", "unused.weight has no shape"),
        ("widens", "the buffer extra becomes torch.float64"),
        ("grows", r"the buffer extra becomes .* of shape \(12,\)"),
        ("appears", "the buffer extra appears"),
        ("vanishes", "the buffer extra disappears"),
        ("parts", "extra and twin.extra, which were one tensor, become two"),
        ("replaces", "the parameter last.weight is replaced"),
        ("remembers", "other numbers when it is trained again from the same start"),
        ("adds_aside", "other numbers when it is trained again from the same start"),
        ("fails", "LookupError: no 1 here"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name_before_the_first_round(tmp_path: Path, name: str, words: str) -> None:
    for executor in ("serial", "processes"):
        config = training(name, **{"learning.executor": executor})
        with pytest.raises(FedtwinError, match=f"^learning.model = '{NETS}:{name}'.*{words}"):
            simulate(config, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()
    with pytest.raises(FedtwinError, match=words):
        initial_model(training(name))
    with pytest.raises(FedtwinError, match=words):
        TorchTrainer("press-1", None, None, 2).prepare(training(name))


@pytest.mark.parametrize("name", ["one_for_all", "own_norm", "root_of_variance"])
def test_batches_of_two_of_an_odd_number_of_samples_train(name: str) -> None:
    changes = {"learning.batch_size": 2, "fleet.samples_min": 5, "fleet.samples_max": 7, "learning.learning_rate": 0.001}
    serial = simulate(training(name, **changes))
    assert serial.summary.refusals == 0
    workload = make_workload(training(name, **changes), DIGITS.shape, 10)
    by_tensors = simulate(training(name, **changes), executor=Hub(make_trainer(workload, "float32", "cpu")).executor())
    assert by_tensors.summary.test_loss == pytest.approx(serial.summary.test_loss, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("one_for_all", {"learning.batch_size": 1}, "learning.batch_size = 1: .* at least 2"),
        ("own_norm", {"learning.batch_size": 1}, "learning.batch_size = 1: .* at least 2"),
        ("root_of_variance", {"learning.batch_size": 1}, "learning.batch_size = 1: .* at least 2"),
        ("resnet18", {"learning.batch_size": 1}, "learning.batch_size = 1: .*'resnet18'.* at least 2"),
        ("one_for_all", {"fleet.samples_min": 1, "fleet.samples_max": 1}, r"D_n = 1 for 6 of 6 devices .* at least 2"),
    ],
)
def test_a_single_sample_that_cannot_be_avoided_is_told_before_the_first_round(
    tmp_path: Path, name: str, changes: dict[str, Any], sentence: str
) -> None:
    model = name if name == "resnet18" else f"{NETS}:{name}"
    config = training(name, **changes, **{"learning.model": model})
    with pytest.raises(FedtwinError, match=sentence):
        simulate(config, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(FedtwinError, match="at least 2"):
        TorchTrainer("press-1", None, None, 0).prepare(config)


def test_a_single_sample_is_fine_for_who_can_train_on_it() -> None:
    alone = {"learning.batch_size": 1, "fleet.samples_min": 1, "fleet.samples_max": 3, "run.rounds": 6}
    for model in ("mlp", f"{NETS}:rebinds"):
        assert simulate(training("", **{**alone, "learning.model": model})).summary.refusals == 0


def test_an_error_late_in_training_is_a_sentence() -> None:
    with pytest.raises(
        FedtwinError, match=r"^learning.model = .*fails_late' fails in training: KeyError: 'seventh' \(.*own_networks.py, line"
    ):
        simulate(training("fails_late", **{"learning.batch_size": 2}))


def test_a_buffer_that_appears_late_is_told_when_it_does() -> None:
    with pytest.raises(FedtwinError, match="appears_late': the buffer late appears only in training"):
        simulate(training("appears_late", **{"learning.batch_size": 2}))


def test_samples_that_devices_must_share_are_told(tmp_path: Path) -> None:
    from fedtwin.errors import FedtwinWarning

    arrays: dict[str, Any] = {
        "x_train": DIGITS.x_train[:100],
        "y_train": np.arange(100) % 10,
        "x_test": DIGITS.x_test[:20],
        "y_test": np.arange(20) % 10,
    }
    np.savez(tmp_path / "few.npz", **arrays)
    config = training(
        "lazy",
        **{
            "learning.dataset": str(tmp_path / "few.npz"),
            "learning.owned_samples": 30,
            "fleet.samples_min": 20,
            "fleet.samples_max": 30,
        },
    )
    with pytest.warns(FedtwinWarning, match=r"6 devices own 30 samples each, 180 in all.* has 100.* 80 of them") as caught:
        simulate(config)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(load_config(overrides={**config_settings(config), "learning.owned_samples": 10}))
        Learner(training("lazy"), [20] * 6).close()


def config_settings(config: Config) -> dict[str, Any]:
    learning = config.learning or LearningConfig()
    return {
        "learning.dataset": learning.dataset, "learning.model": learning.model, "learning.executor": "serial",
        "fleet.devices": config.fleet.devices, "fleet.channels": config.fleet.channels, "run.rounds": 5,
        "fleet.samples_min": 5, "fleet.samples_max": 9, "objective.min_mean_samples": 0.0,
    }  # fmt: skip
