"""Local training against plain PyTorch with an optimiser and an explicit proximal term."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedtwin.config import LearningConfig
from fedtwin.learning.data import Dataset, load_dataset
from fedtwin.learning.layout import Weights
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
    mean, std = data.normalisation()
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
        model = build_model(name, TINY.image_shape, 4, 1)
        start = initial_weights(model)
        state, loss = plainly(build_model(name, TINY.image_shape, 4, 1), TINY, order, config)
        expected = model_layout(model).pack({tensor: value.numpy() for tensor, value in state.items()})
        trained = LocalTrainer(model, Images(TINY), config).train(start, order)
        update = np.linalg.norm(expected.floats - start.floats)
        errors.append(float(np.linalg.norm(trained.weights.floats - expected.floats) / update))
        loss_errors.append(abs(trained.train_loss / loss - 1))
        assert np.array_equal(trained.weights.counters, expected.counters) and trained.finite
    assert min(errors) < 1e-3 and min(loss_errors) < 1e-5, (errors, loss_errors)


def test_training_is_deterministic_and_independent_of_what_was_trained_before() -> None:
    config = LearningConfig()
    model = build_model("resnet18", TINY.image_shape, 4, 1)
    start = initial_weights(model)
    trainer = LocalTrainer(model, Images(TINY), config)
    order = np.arange(40).reshape(1, 40)
    once = trainer.train(start, order).weights
    trainer.evaluate(once)
    trainer.train(once, order[:, ::-1].copy())
    again = trainer.train(start, order).weights
    assert np.array_equal(once.floats, again.floats) and np.array_equal(once.counters, again.counters)
    assert set(once.counters) == {2}, "BatchNorm has counted its two batches"


def test_evaluation_counts_right_answers() -> None:
    model = build_model("mlp", TINY.image_shape, 4, 1)
    trainer = LocalTrainer(model, Images(TINY), LearningConfig())
    weights = initial_weights(model)
    layout = model_layout(model)
    always_two = Weights(np.zeros_like(weights.floats), weights.counters)
    layout.unpack(always_two)["5.bias"][2] = 5.0
    assert trainer.evaluate(always_two).test_accuracy == pytest.approx(5 / 20)


def test_a_diverging_rate_is_seen() -> None:
    model = build_model("mlp", TINY.image_shape, 4, 1)
    trainer = LocalTrainer(model, Images(TINY), LearningConfig(learning_rate=1e30))
    assert not trainer.train(initial_weights(model), np.arange(60).reshape(1, 60)).finite


def test_digits_are_learned() -> None:
    data = load_dataset("digits")
    model = build_model("mlp", data.image_shape, 10, 1)
    trainer = LocalTrainer(model, Images(data), LearningConfig(learning_rate=0.1))
    order = np.stack([rng.permutation(len(data.y_train)) for _ in range(12)])
    assert trainer.evaluate(trainer.train(initial_weights(model), order).weights).test_accuracy > 0.93


def test_a_network_that_drops_the_axis_of_a_batch_of_one_is_trained_and_evaluated() -> None:
    model = build_model("tests.learning.own_networks:squeezes", (1, 8, 8), 10, 1)
    digits = load_dataset("digits")
    data = Dataset(digits.x_train, digits.y_train, digits.x_test[:1], digits.y_test[:1])
    for batch_size, samples in ((1, 3), (2, 3)):
        trainer = LocalTrainer(model, Images(data), LearningConfig(batch_size=batch_size))
        trained = trainer.train(initial_weights(model), np.arange(samples)[None])
        assert trained.finite and np.isfinite(trainer.evaluate(trained.weights).test_loss)


@pytest.mark.filterwarnings("ignore:grad and param do not obey")
def test_a_parameter_transposed_in_place_is_trained_as_plain_pytorch_does() -> None:
    order, data = np.arange(6)[None], load_dataset("digits")
    config = LearningConfig(batch_size=2, proximal=0.0)
    one, other = (build_model("tests.learning.own_networks:transposes", (1, 8, 8), 10, 1) for _ in range(2))
    start, (state, loss) = initial_weights(one), plainly(other, data, order, config)
    trained = LocalTrainer(one, Images(data), config).train(start, order)
    assert trained.train_loss == pytest.approx(loss, rel=1e-5)
    found = model_layout(one).unpack(trained.weights)["square.weight"]
    np.testing.assert_allclose(found, state["square.weight"], rtol=1e-4, atol=1e-6)
