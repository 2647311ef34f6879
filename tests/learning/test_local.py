"""Local training against plain PyTorch with an optimiser and an explicit proximal term."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedtwin.config import LearningConfig
from fedtwin.learning.crops import draw_crops
from fedtwin.learning.data import Dataset, load_dataset
from fedtwin.learning.layout import Weights
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Images, LocalTrainer, initial_weights, model_layout
from fedtwin.learning.models import build_model

rng = np.random.default_rng(0)
TINY = Dataset(
    rng.integers(0, 255, (60, 16, 16, 3), np.uint8),
    rng.integers(0, 4, 60),
    rng.integers(0, 255, (20, 16, 16, 3), np.uint8),
    np.arange(20) % 4,
)


def plainly(
    model: nn.Module, data: Dataset, order: np.ndarray, config: LearningConfig
) -> tuple[dict[str, torch.Tensor], float]:
    by = data.normalisation()
    mean, std = np.array(by.mean, np.float32), np.array(by.std, np.float32)
    x = torch.tensor(((data.x_train.astype(np.float32) - mean) / std).transpose(0, 3, 1, 2))
    y = torch.tensor(data.y_train)
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)
    total = 0.0
    for epoch in order:
        for first in range(0, len(epoch), config.batch_size):
            batch = torch.from_numpy(epoch[first : first + config.batch_size])
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            total += float(loss.detach()) * len(batch)
            for parameter, anchor in zip(model.parameters(), start, strict=True):
                loss = loss + config.proximal / 2 * (parameter - anchor).square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.state_dict(), total / order.size


@pytest.mark.parametrize(
    "name", ["mlp", "small-cnn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("resnet18", "resnet18-groupnorm"))]
)
def test_training_is_sgd_with_the_proximal_term(name: str) -> None:
    """The best of five trials: rounding differs between memory layouts, and may flip a ReLU of a deep network."""
    config = LearningConfig(batch_size=8, learning_rate=0.003, proximal=50.0)
    errors, loss_errors = [], []
    for _ in range(5):
        order = np.stack([rng.permutation(60)[:13] for _ in range(2)])
        model = build_model(name, TINY.shape, 4, 1)
        start = initial_weights(model)
        state, loss = plainly(build_model(name, TINY.shape, 4, 1), TINY, order, config)
        expected = model_layout(model).pack({tensor: value.numpy() for tensor, value in state.items()})
        trained = LocalTrainer(model, Images(TINY), config).train(start, Lesson(order, config.learning_rate))
        update = np.linalg.norm(expected.floats - start.floats)
        errors.append(float(np.linalg.norm(trained.weights.floats - expected.floats) / update))
        loss_errors.append(abs(trained.train_loss / loss - 1))
        assert np.array_equal(trained.weights.counters, expected.counters) and trained.finite
    assert min(errors) < 1e-3 and min(loss_errors) < 1e-5, (errors, loss_errors)


def by_torch(model: nn.Module, images: Images, lesson: Lesson, learning: LearningConfig) -> float:
    """A loop as one would write it, with torch.optim: clip, then the proximal term, then the step with its decay."""
    kept: dict[str, Any] = {"lr": lesson.rate, "weight_decay": learning.weight_decay}
    optimiser: torch.optim.Optimizer
    if learning.optimiser == "adam":
        optimiser = torch.optim.Adam(model.parameters(), **kept)
    else:
        optimiser = torch.optim.SGD(model.parameters(), momentum=0.8 if learning.optimiser == "momentum" else 0.0, **kept)
    anchors = [parameter.detach().clone() for parameter in model.parameters()]
    total = 0.0
    for epoch in range(len(lesson.order)):
        for first in range(0, lesson.order.shape[1], learning.batch_size):
            batch = slice(first, first + learning.batch_size)
            places = torch.from_numpy(lesson.order[epoch, batch])
            crops = None if lesson.crops is None else torch.from_numpy(lesson.crops[epoch, batch]).long()
            optimiser.zero_grad()
            loss = functional.cross_entropy(model(images.batch(places, crops)), images.y_train[places])
            loss.backward()  # type: ignore[no-untyped-call]
            if learning.clip_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), learning.clip_norm)
            for parameter, anchor in zip(model.parameters(), anchors, strict=True):
                assert parameter.grad is not None
                parameter.grad += learning.proximal * (parameter.detach() - anchor)
            optimiser.step()
            total += float(loss.detach()) * len(places)
    return total / lesson.order.size


@pytest.mark.parametrize("crops", [False, True], ids=["whole", "cropped"])
@pytest.mark.parametrize("clip_norm", [0.0, 0.3])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_training_is_that_of_torch_optim(optimiser: str, weight_decay: float, clip_norm: float, crops: bool) -> None:
    own = {"momentum": 0.8} if optimiser == "momentum" else {}
    learning = LearningConfig(
        optimiser=optimiser, weight_decay=weight_decay, clip_norm=clip_norm, proximal=2.0, batch_size=8, **own
    )
    order = np.stack([rng.permutation(60)[:20] for _ in range(2)])
    lesson = Lesson(order, 0.02, draw_crops(0, 1, 2, 20, 2) if crops else None)
    one, other = (build_model("mlp", TINY.shape, 4, 1) for _ in range(2))
    start, loss = initial_weights(one), by_torch(other, Images(TINY), lesson, learning)
    trained = LocalTrainer(one, Images(TINY), learning).train(start, lesson)
    expected = model_layout(other).pack({name: tensor.detach().numpy() for name, tensor in other.state_dict().items()})
    change = np.linalg.norm(expected.floats - start.floats)
    assert np.linalg.norm(trained.weights.floats - expected.floats) < 1e-4 * change
    assert trained.train_loss == pytest.approx(loss, rel=1e-5)


def test_what_is_frozen_does_not_decay() -> None:
    model = build_model("mlp", TINY.shape, 4, 1)
    frozen = next(iter(model.parameters())).requires_grad_(False)
    start = initial_weights(model)
    for optimiser in ("sgd", "momentum", "adam"):
        trainer = LocalTrainer(model, Images(TINY), LearningConfig(optimiser=optimiser, weight_decay=0.5, clip_norm=1.0))
        trained = trainer.train(start, Lesson(np.arange(20)[None], 0.1)).weights
        assert np.array_equal(trained.floats[: frozen.numel()], start.floats[: frozen.numel()])
        assert not np.array_equal(trained.floats, start.floats)


def test_training_is_deterministic_and_independent_of_what_was_trained_before() -> None:
    config = LearningConfig()
    model = build_model("resnet18", TINY.shape, 4, 1)
    start = initial_weights(model)
    trainer = LocalTrainer(model, Images(TINY), config)
    order = np.arange(40).reshape(1, 40)
    lesson = Lesson(order, config.learning_rate)
    once = trainer.train(start, lesson).weights
    trainer.evaluate(once)
    trainer.train(once, Lesson(order[:, ::-1].copy(), config.learning_rate))
    again = trainer.train(start, lesson).weights
    assert np.array_equal(once.floats, again.floats) and np.array_equal(once.counters, again.counters)
    assert set(once.counters) == {2}, "BatchNorm has counted its two batches"


def test_evaluation_counts_right_answers() -> None:
    model = build_model("mlp", TINY.shape, 4, 1)
    trainer = LocalTrainer(model, Images(TINY), LearningConfig())
    weights = initial_weights(model)
    layout = model_layout(model)
    always_two = Weights(np.zeros_like(weights.floats), weights.counters)
    layout.unpack(always_two)["5.bias"][2] = 5.0
    assert trainer.evaluate(always_two).test_metric == pytest.approx(5 / 20)


def test_a_diverging_rate_is_seen() -> None:
    model = build_model("mlp", TINY.shape, 4, 1)
    trainer = LocalTrainer(model, Images(TINY), LearningConfig())
    assert not trainer.train(initial_weights(model), Lesson(np.arange(60).reshape(1, 60), 1e30)).finite


def test_digits_are_learned() -> None:
    data = load_dataset("digits")
    model = build_model("mlp", data.shape, 10, 1)
    trainer = LocalTrainer(model, Images(data), LearningConfig())
    order = np.stack([rng.permutation(len(data.y_train)) for _ in range(12)])
    assert trainer.evaluate(trainer.train(initial_weights(model), Lesson(order, 0.1)).weights).test_metric > 0.93


def test_a_network_that_drops_the_axis_of_a_batch_of_one_is_trained_and_evaluated() -> None:
    model = build_model("tests.learning.own_networks:squeezes", (1, 8, 8), 10, 1)
    digits = load_dataset("digits")
    data = Dataset(digits.x_train, digits.y_train, digits.x_test[:1], digits.y_test[:1])
    for batch_size, samples in ((1, 3), (2, 3)):
        trainer = LocalTrainer(model, Images(data), LearningConfig(batch_size=batch_size))
        trained = trainer.train(initial_weights(model), Lesson(np.arange(samples)[None], 0.05))
        assert trained.finite and np.isfinite(trainer.evaluate(trained.weights).test_loss)


@pytest.mark.filterwarnings("ignore:grad and param do not obey")
def test_a_parameter_transposed_in_place_is_trained_as_plain_pytorch_does() -> None:
    order, data = np.arange(6)[None], load_dataset("digits")
    config = LearningConfig(batch_size=2, proximal=0.0)
    one, other = (build_model("tests.learning.own_networks:transposes", (1, 8, 8), 10, 1) for _ in range(2))
    start, (state, loss) = initial_weights(one), plainly(other, data, order, config)
    trained = LocalTrainer(one, Images(data), config).train(start, Lesson(order, config.learning_rate))
    assert trained.train_loss == pytest.approx(loss, rel=1e-5)
    found = model_layout(one).unpack(trained.weights)["square.weight"]
    np.testing.assert_allclose(found, state["square.weight"], rtol=1e-4, atol=1e-6)
