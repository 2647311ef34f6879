"""``fedtwin predict``: on its own test set a model gives the very figure that the run reported."""

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedtwin import load_config, simulate
from fedtwin.cli.app import app
from fedtwin.errors import FedtwinError
from fedtwin.learning.card import Which
from fedtwin.model_out.predicting import predict
from tests.model_out.runs import TASKS, trained

SMALL = {"fleet.samples_min": 10, "fleet.samples_max": 10}
NETWORK = """
import torch
from torch import nn


def network(shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1], outputs))


def worst(outputs, targets):
    return (outputs - targets).abs().max()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for task in TASKS:
        (folder / task).mkdir()
        trained(folder / task, task)
    return folder


@pytest.mark.parametrize("task", TASKS)
def test_every_kept_model_gives_the_figure_that_was_reported(runs: Path, task: str) -> None:
    folder = runs / task
    summary = json.loads((folder / "run" / "summary.json").read_text())
    for which in get_args(Which):
        found = predict(folder / "run", str(folder / "data" / "test.npz"), which=which)
        assert (found.test_metric, found.test_loss) == (found.card.test_metric, found.card.test_loss), which
        if which == "served":
            assert (found.test_metric, found.test_loss) == (summary["test_metric"], summary["test_loss"])
            assert (found.card.config_hash, found.card.task) == (summary["config_hash"], task)


@pytest.mark.parametrize(("task", "metric"), [("regression", "rmse"), ("multilabel", "f1")])
def test_several_targets_have_a_figure_each(tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str, metric: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5)).astype(np.float32)
    y = np.stack([x[:, 0], 1000.0 * x[:, 1]], 1).astype(np.float32)
    y = y if task == "regression" else (y > 0.3).astype(np.float32)
    np.savez(tmp_path / "data.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    given = {"dataset": str(tmp_path / "data.npz"), "model": "mlp", "task": task, "owned_samples": 10}
    learning = {f"learning.{name}": value for name, value in given.items()}
    simulate(
        load_config(overrides={"fleet.devices": 4, "fleet.channels": 2, "run.rounds": 3, **SMALL, **learning}),
        out=tmp_path / "run",
    )
    found = predict(tmp_path / "run", str(tmp_path / "data.npz"))
    assert found.by_target is not None and found.test_metric is not None
    if task == "regression":
        rmse = np.sqrt(np.square(found.outputs.astype(float) - y[40:]).mean(0))
        assert found.by_target == pytest.approx(rmse) and found.test_metric == pytest.approx(np.sqrt(np.square(rmse).mean()))
    else:
        assert found.test_metric == pytest.approx(np.mean(found.by_target))
    app(["predict", str(tmp_path / "run"), str(tmp_path / "data.npz"), "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)[f"{metric}_by_target"] == list(found.by_target)


def test_the_command_tells_metric_and_predictions(runs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run, data = str(runs / "classification" / "run"), str(runs / "classification" / "data")
    app(["predict", run, data, "--json", "--out", str(tmp_path / "p.csv"), "--which", "best"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    y = np.load(Path(data, "test.npz"))["y_test"]
    assert told["accuracy"] == told["reported"] == (np.array(told["predictions"]) == y).mean() and told["which"] == "best"
    rows = (tmp_path / "p.csv").read_text().splitlines()
    assert rows[0].startswith("sample,predicted,output_0") and len(rows) == 1 + told["samples"] == 1 + len(y)
    with pytest.raises(FedtwinError, match=r"p\.csv' exists already"):
        app(["predict", run, data, "--out", str(tmp_path / "p.csv")], standalone_mode=False)


def test_samples_without_targets_are_predicted_and_not_measured(runs: Path, tmp_path: Path) -> None:
    folder = runs / "regression"
    x = np.load(folder / "data" / "test.npz")["x_test"]
    whole = predict(folder / "run", str(folder / "data"))
    np.savez(tmp_path / "x.npz", x=x)
    columns = {f"channel_{k}": pa.array(list(x[:, k])) for k in range(x.shape[1])}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    for name in ("x.npz", "x.parquet"):
        found = predict(folder / "run", str(tmp_path / name))
        assert found.test_metric is None and found.predicted.tobytes() == whole.predicted.tobytes()


def test_what_does_not_fit_is_one_sentence(runs: Path, tmp_path: Path) -> None:
    run = runs / "classification" / "run"
    np.savez(tmp_path / "short.npz", x=np.ones((3, 2, 9), np.float32))
    np.savez(tmp_path / "none.npz", z=np.ones(3))
    for data, sentence in [
        (str(tmp_path / "short.npz"), r"has samples of shape \(2, 9\), and the model takes"),
        (str(tmp_path / "none.npz"), "has no array x_test, x or x_train"),
        (str(tmp_path / "gone.npz"), "cannot be read: No such file"),
        (str(tmp_path / "x.txt"), "is not data"),
    ]:
        with pytest.raises(FedtwinError, match=sentence):
            predict(run, data)
    with pytest.raises(FedtwinError, match="no run has left a model there"):
        predict(tmp_path, "digits")


def test_a_changed_model_is_not_used(tmp_path: Path, runs: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("model.safetensors", "SHA256SUMS"):
        (run / name).write_bytes((runs / "classification" / "run" / name).read_bytes())
    data = bytearray((run / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (run / "model.safetensors").write_bytes(data)
    with pytest.raises(FedtwinError, match="is not as it was written"):
        predict(run, str(runs / "classification" / "data"))


def test_code_of_the_runs_own_is_run_only_when_asked_and_only_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "nets.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path / "mine")
    own = {"learning.model": "nets:network", "learning.metric": "nets:worst", "learning.metric_direction": "lower"}
    trained(tmp_path, "regression", **own, **{"learning.input": "windows"})
    run, data = tmp_path / "run", str(tmp_path / "data")
    with pytest.raises(FedtwinError, match=r"learning\.model = 'nets:network' and .* is not run unasked: give --code DIR"):
        predict(run, data)
    found = predict(run, data, trust=True)
    assert found.test_metric == found.card.test_metric == predict(run, data, code=tmp_path / "mine").test_metric
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "nets.py").write_text(NETWORK.replace("nn.Flatten()", "nn.Flatten(), nn.Tanh()"))
    with pytest.raises(FedtwinError, match=r"the source in '.*other' is not the run's, whose digest is"):
        predict(run, data, code=tmp_path / "other")


def test_features_by_name_must_be_the_runs(tmp_path: Path) -> None:
    """In Parquet their order is that of their names: one of another name would silently change places with others."""
    rng, folder = np.random.default_rng(0), tmp_path / "data"
    folder.mkdir()

    def rows(path: Path, *names: str) -> str:
        columns = {name: rng.normal(size=40) for name in names}
        pq.write_table(pa.table({**columns, "target": np.arange(40) % 2}), path)
        return str(path)

    for name in ("board-1.parquet", "board-2.parquet", "test.parquet"):
        rows(folder / name, "ambient_c", "load_w", "speed")
    config = load_config(
        overrides={"learning.dataset": f"{folder}/", "learning.partition": "natural", "learning.model": "linear",
                   "fleet.devices": 2, "fleet.channels": 1, "fleet.samples_min": 20, "fleet.samples_max": 30, "run.rounds": 3}
    )  # fmt: skip
    simulate(config, out=tmp_path / "run")
    same = predict(tmp_path / "run", rows(tmp_path / "held.parquet", "speed", "load_w", "ambient_c"))
    assert same.card.features == ("ambient_c", "load_w", "speed")
    with pytest.raises(FedtwinError, match="has the features t_ambient, where the model takes ambient_c"):
        predict(tmp_path / "run", rows(tmp_path / "renamed.parquet", "t_ambient", "load_w", "speed"))
    rows(folder / "board-2.parquet", "t_ambient", "load_w", "speed")
    with pytest.raises(
        FedtwinError, match=r"'board-2.parquet' has the features t_ambient, where 'board-1.parquet' has ambient_c"
    ):
        simulate(config, out=tmp_path / "other")
