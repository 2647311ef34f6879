"""Tasks: classes, numbers and labels are learned from rows and windows, the same bits by every executor of the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin import simulate
from fedtwin.config import Config, LearningConfig, build_config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors import make_workload
from fedtwin.learning.executors.cuda_flat import Task
from fedtwin.learning.executors.cuda_one_by_one import OneByOneTrainer
from fedtwin.learning.executors.cuda_trainers import make_trainer
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.tasks import checked_targets, task_of
from fedtwin.live.wire.settings import shared_settings, with_code_in
from fedtwin.records.reading import read_summary
from fedtwin.sim import Result

FLEET = {"fleet.devices": 4, "fleet.channels": 2, "fleet.samples_min": 15, "fleet.samples_max": 20, "run.rounds": 30}
OWN = """
import torch

def each(outputs, targets):
    return (outputs - targets).abs().sum(1)

def one(outputs, targets):
    return (outputs - targets).abs().mean()

def worst(outputs, targets):
    return (outputs - targets).abs().max()

def seldom(outputs, targets):
    return (outputs - targets).abs().max() / (outputs.abs().max() > 1e9).float() * 0

def descent(parameters, rate):
    return torch.optim.RMSprop(parameters, lr=rate)
"""


def rows(folder: Path, task: str, count: int = 160) -> str:
    """Five features, of which one is large; four devices, of different sizes."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(count, 5)) * [1, 1, 1, 1, 1000] + [0, 5, 0, 0, -3000]
    score = x[:, :2] - [0, 5] + x[:, [4]] / 1000 + 3
    y: dict[str, Any] = {"classification": (score[:, 0] > 0).astype(int), "regression": 200 * score, "multilabel": score > 0}
    client = np.sort(rng.integers(0, 4, size=count - 40))
    test = slice(0, 40)
    path = folder / "rows.npz"
    np.savez(path, x_train=x[40:], y_train=y[task][40:], client=client, x_test=x[test], y_test=y[task][test])
    return str(path)


def trained(dataset: str, task: str, out: Path | None = None, **more: Any) -> Result:
    given = {
        "learning.dataset": dataset,
        "learning.task": task,
        "learning.partition": "natural",
        "learning.batch_size": 8,
        "learning.learning_rate": 0.2,
    }
    return simulate(build_config({}, {**FLEET, **given, **{f"learning.{key}": value for key, value in more.items()}}), out=out)


@pytest.mark.parametrize(
    ("task", "metric", "direction", "reached"),
    [("regression", "rmse", "lower", 120.0), ("multilabel", "f1", "higher", 0.85)],
)
def test_numbers_and_labels_are_learned_and_recorded_by_their_own_metric(
    tmp_path: Path, task: str, metric: str, direction: str, reached: float
) -> None:
    data = rows(tmp_path, task)
    one, other = (
        trained(data, task, tmp_path / executor, executor=executor, workers=1) for executor in ("serial", "processes")
    )
    assert one.evaluations == other.evaluations and one.weights is not None and other.weights is not None
    assert all((one.weights[name] == other.weights[name]).all() for name in one.weights)
    summary = read_summary(tmp_path / "serial")
    assert (summary["metric"], summary["metric_direction"], "test_accuracy" in summary) == (metric, direction, False)
    assert summary["test_metric"] == one.evaluations[-1].test_metric and one.evaluations[-1].test_accuracy is None
    began, ended = (evaluation.test_metric for evaluation in (one.evaluations[0], one.evaluations[-1]))
    assert began is not None and ended is not None
    assert ended < reached < began / 2 if direction == "lower" else ended > reached > began


def test_classes_keep_their_accuracy(tmp_path: Path) -> None:
    result = trained(rows(tmp_path, "classification"), "classification", tmp_path / "run", executor="serial")
    assert result.summary.test_accuracy == result.summary.test_metric == result.evaluations[-1].test_accuracy
    assert read_summary(tmp_path / "run")["metric"] == "accuracy"


def test_a_metric_that_is_no_number_is_not_had(tmp_path: Path) -> None:
    """Records have nothing there, as JSON has no NaN, and no model is taken for the best one by it."""
    (tmp_path / "own_objective.py").write_text(OWN, encoding="utf-8")
    data = rows(tmp_path, "regression")
    (tmp_path / "mine.toml").write_text(f"[learning]\ndataset = {data!r}\ntask = 'regression'\npartition = 'natural'\n")
    own = {"learning.metric": "own_objective:seldom", "learning.metric_direction": "lower", "learning.average": "ema"}
    config = load_config(
        tmp_path / "mine.toml", {**FLEET, **own, "learning.executor": "serial", "learning.learning_rate": 0.01}
    )
    result = simulate(config, out=tmp_path / "run")
    assert {one.test_metric for one in result.evaluations} == {one.plain_test_metric for one in result.evaluations} == {None}
    assert all(one.test_loss is not None for one in result.evaluations)
    assert "NaN" not in (tmp_path / "run" / "summary.json").read_text()
    assert read_summary(tmp_path / "run")["test_metric"] is None


@pytest.mark.parametrize("optimiser", ["momentum", "adam", "own_objective:descent"])
def test_optimisers_losses_and_metrics_by_name_or_of_ones_own(tmp_path: Path, optimiser: str) -> None:
    (tmp_path / "own_objective.py").write_text(OWN, encoding="utf-8")
    data, own = rows(tmp_path, "regression"), {"learning.loss": "own_objective:each", "learning.metric": "own_objective:worst"}
    (tmp_path / "mine.toml").write_text(f"[learning]\ndataset = {data!r}\ntask = 'regression'\npartition = 'natural'\n")
    settings = {
        **FLEET,
        **own,
        "learning.metric_direction": "lower",
        "learning.optimiser": optimiser,
        "learning.learning_rate": 0.01,
    }
    config = load_config(tmp_path / "mine.toml", {**settings, "learning.executor": "serial"})
    result = simulate(config, out=tmp_path / "run")
    summary = read_summary(tmp_path / "run")
    assert (summary["metric"], summary["metric_direction"]) == ("worst", "lower") and "loss_code" in summary
    began, ended = (evaluation.test_metric for evaluation in (result.evaluations[0], result.evaluations[-1]))
    assert began is not None and ended is not None and ended < began
    before = config_hash(config)
    (tmp_path / "own_objective.py").write_text(OWN.replace(".abs().sum(1)", ".square().sum(1)"), encoding="utf-8")
    assert config_hash(load_config(tmp_path / "mine.toml", {**settings, "learning.executor": "serial"})) != before


def test_boards_must_have_the_same_loss(tmp_path: Path) -> None:
    (tmp_path / "own_objective.py").write_text(OWN, encoding="utf-8")
    (tmp_path / "mine.toml").write_text("[learning]\ntask = 'regression'\nloss = 'own_objective:each'\n", encoding="utf-8")
    there = Config.model_validate(shared_settings(load_config(tmp_path / "mine.toml")))
    assert list(there.code.sources) == ["learning.loss"]
    make_workload(with_code_in(tmp_path, there), (5,), 2)
    board = tmp_path / "board"
    board.mkdir()
    (board / "own_objective.py").write_text(OWN + "\n", encoding="utf-8")
    with pytest.raises(FedtwinError, match=r"learning\.loss = 'own_objective:each': the source in .* is not the run's"):
        make_workload(with_code_in(board, there), (5,), 2)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_trainer_of_a_gpu_does_the_same(tmp_path: Path, optimiser: str) -> None:
    """On the CPU here, in another layout: the same up to rounding."""
    settings = {"dataset": rows(tmp_path, "regression"), "task": "regression", "optimiser": optimiser, "learning_rate": 0.01}
    config = build_config({}, {f"learning.{key}": value for key, value in settings.items()})
    assert config.learning is not None
    data = load_dataset(config.learning.dataset, config.learning)
    workload = make_workload(config, data.shape, data.outputs)
    plain, gpu = workload.trainer(), make_trainer(workload, "float32", "cpu")
    assert isinstance(gpu, OneByOneTrainer)
    start, lesson = workload.initial()[1], Lesson(np.arange(60).reshape(2, 30), 0.01)
    expected, (found,) = plain.train(start, lesson), gpu.train([Task(gpu.adopt(start), lesson)])
    assert gpu.host(found.weights).floats == pytest.approx(expected.weights.floats, abs=1e-5)
    assert found.train_loss == pytest.approx(expected.train_loss, rel=1e-5)
    (judged,) = gpu.evaluate([found.weights])
    assert judged.test_metric == pytest.approx(plain.evaluate(expected.weights).test_metric, rel=1e-4)


def test_a_loss_that_gives_no_number_per_sample_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "own_objective.py").write_text(OWN, encoding="utf-8")
    config = build_config({}, {**FLEET, "learning.task": "regression", "learning.dataset": rows(tmp_path, "regression")})
    config = config.model_copy(update={"code": config.code.model_copy(update={"folder": str(tmp_path)})})
    for key, name, sentence in (
        ("loss", "own_objective:one", r"learning\.loss = 'own_objective:one' gives \(\) for .* one number per sample"),
        ("metric", "own_objective:each", r"learning\.metric = 'own_objective:each' gives tensor.*one number is needed"),
        ("optimiser", "own_objective:each", r"learning\.optimiser = 'own_objective:each' fails"),
    ):
        learning = config.learning.model_copy(update={key: name, "executor": "serial"}) if config.learning else None
        with pytest.raises(FedtwinError, match=sentence):
            simulate(config.model_copy(update={"learning": learning}))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"task": "regression", "loss": "bce"}, "loss = 'bce' is not for task = 'regression': choose auto, mse, mae, huber"),
        ({"task": "multilabel", "metric": "rmse"}, "metric = 'rmse' is not for task = 'multilabel'"),
        ({"metric": "acuracy"}, "metric = 'acuracy' is not for task = 'classification'"),
        ({"optimiser": "adamm"}, "learning.optimiser = 'adamm' is not allowed: choose one of sgd, momentum, adam"),
        ({"task": "regression", "partition": "dirichlet"}, "'dirichlet' mixes classes, and task = 'regression' has none"),
        ({"normalisation": {"mean": [1.0]}}, "mean and std must have one number each"),
        ({"normalisation": {"mean": [1.0], "std": [0.0]}}, "a standard deviation must be above 0"),
        (
            {"task": "regression"},
            "learning.dataset = 'digits' has classes: learning.task = 'regression' needs data of your own",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        simulate(build_config({}, {**FLEET, **{f"learning.{key}": value for key, value in settings.items()}}))


def test_a_task_as_json() -> None:
    task = task_of(LearningConfig(task="regression", metric="mine:smape", metric_direction="lower"))
    assert task.as_json() == {"name": "regression", "loss": "mse", "metric": "smape", "direction": "lower"}


@pytest.mark.parametrize(
    ("task", "y", "sentence"),
    [
        ("multilabel", np.array([0.0, 0.5]), "must hold 0 or 1 for every label"),
        ("regression", np.array([1.0, np.nan]), "not a finite number"),
        ("regression", np.array(["a", "b"]), "needs numbers"),
        ("classification", np.zeros((2, 3), int), r"y_test \(2, 3\) is not one label each"),
        ("regression", np.zeros(3), r"y_test \(3,\) is not targets of learning\.task = 'regression'"),
    ],
)
def test_targets_that_are_not_the_tasks_are_refused(task: str, y: np.ndarray, sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        checked_targets("learning.dataset = 'mine.npz'", task, "test", y, 2)
