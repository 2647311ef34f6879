"""Training runs through the simulator: executors agree, runs resume bit for bit, models learn, bad input is told."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedtwin import open_run
from fedtwin.cli.app import app
from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.learning.data import Dataset
from fedtwin.learning.partition import training_order
from fedtwin.sim import Result, resume, simulate
from tests.conftest import FEDTWIN, Cli, mostly_slow, run_cli
from tests.learning.aggregation.every_rule import RULES

MODELS = ("model.safetensors", "model-best.safetensors", "model-plain.safetensors")
FOLDER = ("rounds.parquet", "evaluations.parquet", *MODELS, "summary.json", "start.parquet", "config.toml")


def training(**changes: Any) -> Config:
    base = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 60, "learning.evaluate_every_s": 1.0}
    return load_config(overrides={**base, "learning.average": "ema", **changes})


def model_of(result: Result) -> bytes:
    assert result.folder is not None
    return (result.folder / "model.safetensors").read_bytes()


def test_who_trains_on_more_samples_than_it_owns_is_told_once() -> None:
    with pytest.warns(FedtwinWarning, match=r"learning\.owned_samples = 60, and device 3 trains on \d+ samples") as told:
        simulate(training(**{"learning.owned_samples": 60}))
    assert len(told) == 1


@pytest.mark.parametrize("scheme", ["CU-UCB", "Sy-fairness"])
def test_the_schedule_does_not_depend_on_learning(scheme: str) -> None:
    plain = simulate(load_config(overrides={"run.rounds": 60, "policy.name": scheme})).rounds
    learned = simulate(training(**{"policy.name": scheme})).rounds
    assert learned.drop_columns(["train_loss"]).equals(plain)
    assert learned["train_loss"].null_count == learned["declined"].to_pylist().count(True) * (scheme == "Sy-fairness")


@pytest.mark.parametrize("scheme", ["CU-UCB", "Sy-fairness"])
def test_a_device_trains_on_as_many_samples_as_it_has_in_its_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str
) -> None:
    trained: dict[tuple[int, int], int] = {}

    def noting(share: Any, seed: int, device: int, round_: int, samples: int, epochs: int) -> Any:
        order = training_order(share, seed, device, round_, samples, epochs)
        trained[round_, device] = order.shape[1]
        return order

    monkeypatch.setattr("fedtwin.learning.lessons.training_order", noting)
    config = training(**{"policy.name": scheme, "fleet.samples_spread": [0.2, 0.9], "run.rounds": 30})
    simulate(config, out=tmp_path / "run")
    run = open_run(tmp_path / "run")
    rows = [row for table in (run.start, run.rounds) for row in table.to_pylist() if not row["declined"]]
    assert trained == {(row["round"], row["device"]): row["samples"] for row in rows}


COMPRESSED = {
    "int8": {"learning.compress": "int8", "radio.update_bits": "model"},
    "float16": {"learning.compress": "float16"},
    "top-k in rounds": {"learning.compress": "top-k", "policy.name": "Sy-fairness"},
    "top-k into a buffer": {"learning.compress": "top-k", "learning.aggregation": "fedbuff"},
}
SETTINGS = {**RULES, **COMPRESSED}


@pytest.mark.parametrize("rule", mostly_slow(SETTINGS, "fedasync", "fedavgm", "ca2fl, eight bits beyond four", "int8"))
def test_executors_agree_to_the_last_bit(tmp_path: Path, rule: str) -> None:
    results = []
    for executor in ("serial", "processes"):
        config = training(**{"learning.executor": executor, **SETTINGS[rule]})
        results.append(simulate(config, out=tmp_path / executor))
    assert model_of(results[0]) == model_of(results[1])
    assert results[0].evaluations == results[1].evaluations
    assert results[0].rounds.equals(results[1].rounds)


@pytest.mark.parametrize(
    "changes", mostly_slow([{}, {"policy.name": "Sy-fairness"}, {"learning.aggregation": "fedbuff"}], {}), ids=str
)
@pytest.mark.filterwarnings("ignore:Time and energy are those of a lighter training")  # three epochs
def test_digits_are_learned_by_every_aggregation(changes: dict[str, Any]) -> None:
    result = simulate(training(**{"run.rounds": 900, "learning.learning_rate": 0.1, "learning.local_epochs": 3, **changes}))
    assert result.summary.test_accuracy is not None and result.summary.test_accuracy > 0.9
    accuracies = [evaluation.test_accuracy or 0.0 for evaluation in result.evaluations]
    assert accuracies[0] < 0.3 and [e.clock_s for e in result.evaluations] == sorted(e.clock_s for e in result.evaluations)
    assert result.evaluations[-1].energy_j > result.evaluations[1].energy_j > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")  # its few samples are shared
def test_a_resnet_with_batchnorm_learns(tmp_path: Path) -> None:
    """Running means are mixed and counters kept: with either averaged into nonsense, evaluation would fail."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 400)
    x = rng.normal(0, 40, (400, 8, 8, 1)) + 60
    x[np.arange(400), labels * 2, 3] += 160
    x = np.clip(x, 0, 255).astype(np.uint8)
    data = Dataset(x[:320], labels[:320], x[320:], labels[320:])
    np.savez(tmp_path / "spots.npz", **data.__dict__)
    config = training(
        **{
            "learning.dataset": str(tmp_path / "spots.npz"),
            "learning.model": "resnet18",
            "learning.owned_samples": 60,
            "fleet.devices": 6,
            "fleet.channels": 3,
            "fleet.samples_min": 24,
            "fleet.samples_max": 32,
            "learning.batch_size": 16,
            "run.rounds": 60,
            "learning.evaluate_every_s": 1000,
        }
    )
    result = simulate(config, out=tmp_path / "run")
    assert result.summary.test_accuracy is not None and result.summary.test_accuracy > 0.8
    from safetensors.numpy import load_file

    tensors = load_file(tmp_path / "run" / "model.safetensors")
    counters = {name: int(t) for name, t in tensors.items() if name.endswith("num_batches_tracked")}
    assert counters and all(value == max(counters.values()) >= 2 for value in counters.values())


def test_a_run_folder_gains_the_promised_files(tmp_path: Path) -> None:
    result = simulate(training(), out=tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {*FOLDER, "devices.parquet", "SHA256SUMS"}
    evaluations = pd.read_parquet(tmp_path / "run" / "evaluations.parquet")
    names = ["round", "clock_s", "energy_j", "test_loss", "test_accuracy", "global_loss", "gradient_norm2", "test_metric"]
    names += ["plain_test_loss", "plain_test_metric", "cost_spent"]
    assert list(evaluations.columns) == names
    assert evaluations.test_accuracy.iloc[-1] == result.summary.test_accuracy
    rounds = pd.read_parquet(tmp_path / "run" / "rounds.parquet")
    spent = pd.read_parquet(tmp_path / "run" / "start.parquet")
    arrived_energy = evaluations.energy_j.iloc[-1]
    total = rounds[["compute_j", "upload_j"]].sum().sum() + spent[["compute_j", "upload_j"]].sum().sum()
    assert 0 < arrived_energy < total


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"policy.name": "Sy-fairness"},
        {"learning.aggregation": "fedbuff"},
        {"learning.aggregation": "fedbuff", "learning.buffer_size": 1},
        {"learning.compress": "float16"},
        {"learning.compress": "int8", "radio.update_bits": "model"},
        {"learning.compress": "top-k", "learning.aggregation": "fedbuff"},
        pytest.param({"learning.compress": "top-k", "policy.name": "Sy-fairness"}, marks=pytest.mark.slow),
        {"fleet.devices": 1, "fleet.channels": 1, "objective.max_energy_j": 0.35, "run.rounds": 300},
    ],
    ids=str,
)
@pytest.mark.parametrize("stop_at", mostly_slow([1, 23, 55], 23))
def test_a_stopped_run_resumes_bit_for_bit(tmp_path: Path, changes: dict[str, Any], stop_at: int) -> None:
    """A run that checkpoints between all rounds and stops in the middle, against one that never stopped."""
    config = training(**changes)
    simulate(config, out=tmp_path / "whole")

    def stop(selections: int) -> None:
        if selections == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, out=tmp_path / "stopped", checkpoint_every_s=0.0, progress=stop)
    resume(tmp_path / "stopped")
    for name in FOLDER:
        if (tmp_path / "whole" / name).exists():
            assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("compress", ["none", "top-k"])
def test_a_killed_run_resumes_bit_for_bit(tmp_path: Path, compress: str) -> None:
    """kill -9 of the real command with worker processes, twice, then --resume."""
    settings = ["--set", "learning.dataset=digits", "--set", "learning.executor=processes", "--rounds", "450"]
    settings += ["--set", "learning.local_epochs=4", "--set", "learning.evaluate_every_s=2"]
    settings += ["--set", f"learning.compress={compress}", "--set", "learning.average=ema"]
    whole = run_cli("run", *settings, "--out", tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    out = tmp_path / "killed"
    command = [*FEDTWIN, "run", *settings, "--out", str(out), "--checkpoint-every-s", "0.2"]
    for _ in range(2):
        process = subprocess.Popen(command)
        seen = out / "checkpoint.safetensors"
        before = seen.stat().st_mtime_ns if seen.exists() else 0
        deadline = time.monotonic() + 120
        while process.poll() is None and (not seen.exists() or seen.stat().st_mtime_ns == before):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        command = [*FEDTWIN, "run", "--resume", str(out), "--checkpoint-every-s", "0.2"]
    assert not (out / "summary.json").exists(), "it was killed before it could end"
    done = run_cli("run", "--resume", out, "--json")
    assert done.returncode == 0, done.stderr
    for name in FOLDER:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_run_without_learning_resumes_too(tmp_path: Path) -> None:
    config = load_config(overrides={"run.rounds": 300})
    simulate(config, out=tmp_path / "whole", trace=True)

    def stop(selections: int) -> None:
        if selections == 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, out=tmp_path / "stopped", trace=True, progress=stop)
    assert len(pd.read_parquet(tmp_path / "stopped" / "rounds.parquet")) >= 200
    resume(tmp_path / "stopped")
    assert (tmp_path / "stopped" / "rounds.parquet").read_bytes() == (tmp_path / "whole" / "rounds.parquet").read_bytes()


def test_what_cannot_be_resumed_is_told(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match="not the folder of an unfinished run"):
        resume(tmp_path)
    simulate(training(**{"run.rounds": 3}), out=tmp_path / "done")
    with pytest.raises(FedtwinError, match="this run is finished"):
        resume(tmp_path / "done")

    def stop(selections: int) -> None:
        if selections == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(training(), out=tmp_path / "stopped", checkpoint_every_s=0.0, progress=stop)
    config = tmp_path / "stopped" / "config.toml"
    config.write_text(config.read_text().replace("mixing = 0.6", "mixing = 0.5"))
    with pytest.raises(FedtwinError, match="has changed since the run began"):
        resume(tmp_path / "stopped")
    config.write_text(config.read_text().replace("mixing = 0.5", "mixing = 0.6"))


def test_two_runs_do_not_write_one_folder(tmp_path: Path) -> None:
    process = subprocess.Popen([*FEDTWIN, "run", "--rounds", "10000000", "--out", str(tmp_path / "run")])
    try:
        while not (tmp_path / "run" / "unfinished.json").exists():
            assert process.poll() is None
            time.sleep(0.01)
        second = run_cli("run", "--resume", tmp_path / "run")
        assert second.returncode == 2 and "is being written by another fedtwin" in second.stderr
    finally:
        process.kill()
        process.wait()


def test_a_kill_while_the_run_is_put_together_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step fails: the summary cannot be written. Trace and training are still there to go on from."""
    simulate(training(), out=tmp_path / "whole", trace=True)

    def fail(*_: object) -> None:
        raise OSError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr("fedtwin.records.folder.RunFolder.finish", fail)
        with pytest.raises(OSError, match="killed here"):
            simulate(training(), out=tmp_path / "cut", trace=True, checkpoint_every_s=0.0)
    assert (tmp_path / "cut" / "checkpoint.safetensors").exists()
    resume(tmp_path / "cut")
    for name in FOLDER:
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.slow
def test_dropout_draws_the_same_whatever_the_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wet.py").write_text(
        "from torch import nn\n"
        "def net(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, classes))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    models = [
        model_of(simulate(training(**{"learning.model": "wet:net", "learning.executor": executor}), out=tmp_path / str(k)))
        for k, executor in enumerate(["serial", "processes", "serial"])
    ]
    assert models[0] == models[1] == models[2]


@pytest.mark.filterwarnings("ignore:Time and energy are those of a lighter training")  # 1 MB is charged
def test_a_last_batch_of_one_sample_trains_with_batchnorm() -> None:
    changes = {"fleet.samples_min": 33, "fleet.samples_max": 33, "fleet.devices": 2, "fleet.channels": 1, "run.rounds": 2}
    result = simulate(training(**{**changes, "learning.model": "resnet18", "learning.evaluate_every_s": 100.0}))
    assert result.summary.test_accuracy is not None


def test_a_rate_that_diverges_stops_the_run_and_keeps_the_records(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        "run", "--rounds", 400, "--set", "learning.learning_rate=1e25", "--set", "learning.executor=serial", "--out", "run"
    )
    assert done.returncode == 2
    assert "learning.learning_rate = 1e+25 diverges" in done.stderr and "device" in done.stderr and "round" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert (tmp_path / "run" / "rounds.parquet").exists() and not (tmp_path / "run" / "summary.json").exists()
    once = cli("run", "--rounds", 5, "--set", "learning.learning_rate=1e25", "--set", "learning.batch_size=1000", "--out", "b")
    assert once.returncode == 2 and "diverges" in once.stderr and len(once.stderr.strip().splitlines()) == 1


BY_THE_REAL_COMMAND = ("learning.dataset=empty.npz", "learning.mixin=1")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("learning.dataset=fashion-mnist", "run `fedtwin data fetch fashion-mnist`"),
        ("learning.dataset=mnist", "learning.dataset = 'mnist' is unknown"),
        ("learning.dataset=nowhere.npz", "nowhere.npz', which the configuration names, cannot be read"),
        ("learning.model=small-cnn", "'small-cnn' does not take images of shape (1, 8, 8)"),
        ("learning.model=best", "learning.model = 'best' is unknown"),
        ("learning.aggregation=fedavg", "needs run.mode = 'sync'"),
        ("learning.mixing=1.5", "learning.mixing = 1.5"),
        ("learning.mixin=1", "did you mean mixing?"),
        ("learning.executor=cuda", "needs a CUDA GPU"),
        ("learning.evaluate_every_s=1e-9", "learning.evaluate_every_s = 1e-09 must be at least 0.01"),
        ("learning.dataset=empty.npz", "empty.npz' is not a .npz of plain arrays"),
        ("policy.name=broken:POLICY", "policy.name = 'broken:POLICY' cannot be loaded: SyntaxError"),
    ],
)
def test_bad_learning_input_is_one_sentence(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, sentence: str
) -> None:
    monkeypatch.setenv("FEDTWIN_DATA", str(tmp_path / "cache"))
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "broken.py").write_text("def")
    words = ["run", "--rounds", "5", "--set", "learning.dataset=digits", "--set", change, "--out", "run"]
    if change in BY_THE_REAL_COMMAND:
        done = cli(*words)
        assert done.returncode == 2 and sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    else:
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(FedtwinError) as told:
            app(words, standalone_mode=False)
        assert sentence in str(told.value) and "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()
