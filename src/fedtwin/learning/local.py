"""Local training and evaluation of one model at a time: the readable reference, and what a device runs.

The network's tensors are views of one flat vector, so a step of SGD with the proximal term is two vector operations.
"""

import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedtwin.config import LearningConfig
from fedtwin.learning.binding import Binding, state_tensors
from fedtwin.learning.chance import seeded
from fedtwin.learning.crops import cut
from fedtwin.learning.data import Dataset
from fedtwin.learning.layout import Entry, Layout, Weights, layout_of
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.objectives import Descent, Objective, objective_of
from fedtwin.learning.partition import batch_sizes

EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Trained:
    """What comes back from one local training."""

    weights: Weights
    train_loss: float
    finite: bool


@dataclass(frozen=True)
class Evaluated:
    """Loss and metric on the test set."""

    test_loss: float
    test_metric: float


def model_layout(model: nn.Module) -> Layout:
    return layout_of({n: (tuple(t.shape), not t.is_floating_point()) for n, t in state_tensors(model).items()})


def initial_weights(model: nn.Module) -> Weights:
    tensors = {name: tensor.detach().cpu().numpy() for name, tensor in state_tensors(model).items()}
    return model_layout(model).pack(tensors)


class Images:
    """A data set as tensors, images or other samples; a batch is normalised when it is taken, targets are from the start."""

    def __init__(self, data: Dataset, device: str = "cpu") -> None:
        found = data.normalisation()
        mean, std = np.array(found.mean, np.float32), np.array(found.std, np.float32)
        per_channel = (-1, *[1] * (len(data.shape) - 1))
        self._mean, self._scale = (torch.from_numpy(v).to(device).view(per_channel) for v in (mean, 1.0 / std))
        order = (0, 3, 1, 2) if data.kind == "images" else tuple(range(data.x_train.ndim))
        self.x_train, self.x_test = (
            torch.from_numpy(np.array(x.transpose(order), order="C")).to(device) for x in (data.x_train, data.x_test)
        )
        target = np.array([found.target_mean, found.target_std], np.float32) if data.task == "regression" else None
        self._target = None if target is None else torch.from_numpy(target).to(device)
        kind = np.int64 if data.task == "classification" else np.float32
        self.y_train, self.y_test = (self._targets(y.astype(kind), device) for y in (data.y_train, data.y_test))

    def _targets(self, y: NDArray[Any], device: str) -> Tensor:
        found = torch.from_numpy(y).to(device)
        return found if self._target is None else (found - self._target[0]) / self._target[1]

    def batch(self, places: Tensor, crops: Tensor | None = None) -> Tensor:
        """These training samples, normalised; images cropped by these numbers, if by any."""
        if crops is None:
            return self.normalised(self.x_train[places])
        found, inside = cut(self.x_train[places], crops)
        return self.normalised(found).mul_(inside)

    def normalised(self, x: Tensor) -> Tensor:
        found = (x.float() - self._mean) * self._scale
        return found.contiguous(memory_format=torch.channels_last if found.dim() == 4 else torch.contiguous_format)

    def in_units(self, values: Tensor) -> Tensor:
        """Outputs, or targets, of a regression in the units of the data; any others as they are."""
        return values if self._target is None else values * self._target[1] + self._target[0]


class LocalTrainer:
    """One network, bound to flat vectors, trained from any model on any samples."""

    def __init__(self, model: nn.Module, images: Images, config: LearningConfig, folder: str | None = None) -> None:
        self._objective = objective_of(config, folder)
        self._model, self._images, self._config = model, images, config
        self._layout = model_layout(model)
        self._floats = torch.zeros(self._layout.float_size)
        self._counters = torch.zeros(self._layout.counter_size, dtype=torch.int64)
        names = [name for name, _ in model.named_parameters()]
        parameters = sum(parameter.numel() for parameter in model.parameters())
        self._gradient = torch.zeros(parameters)
        self._parameters = self._floats[:parameters]
        initial = initial_weights(model)
        entries = {entry.name: entry for entry in self._layout.entries}
        self._views = {name: _view(self._counters if e.counter else self._floats, e) for name, e in entries.items()}
        gradients = {name: _view(self._gradient, entries[name]) for name in names}
        self._binding = Binding(model, self._views, gradients, f"learning.model = {config.model!r}")
        self._load(initial)
        self._pairs = needs_pairs(model, images, config, self._objective)

    def train(self, start: Weights, lesson: Lesson) -> Trained:
        """min L_n(w) + (m/2) ‖w − w_download‖² by SGD (Section III-B), over the samples of a lesson; or by another optimiser,
        whose gradient has the proximal term in it.

        A network that draws (dropout) draws the same for the same order, which is the same for the same device and round.
        """
        self._load(start)
        self._model.train()
        order = lesson.order
        descent = Descent(self._objective, self._model.parameters(), self._parameters, self._gradient, lesson.rate)
        sizes = batch_sizes(order.shape[1], self._config.batch_size, pairs=self._pairs)
        losses = []
        with torch.enable_grad(), seeded(zlib.crc32(order.tobytes())):
            for batch, crops in batches_of(lesson, sizes):
                self._gradient.zero_()
                outputs = outputs_of(self._model, self._images.batch(batch, crops))
                loss = self._objective.mean(outputs, self._images.y_train[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                self._binding.keep_parameters()
                descent.step()
                losses.append(loss.detach() * len(batch))
        self._binding.keep_buffers()
        self._binding.require_the_same_tensors()
        mean_loss = float(torch.stack(losses).sum()) / order.size
        return Trained(self._result(), mean_loss, bool(torch.isfinite(self._floats).all()))

    @torch.no_grad()
    def evaluate(self, weights: Weights) -> Evaluated:
        """On the whole test set. A network that draws here too draws the same every time."""
        return self.predict(weights)[0]

    @torch.no_grad()
    def predict(self, weights: Weights) -> tuple[Evaluated, Tensor]:
        """The same, and the outputs it is had from, of a regression in the units of the data."""
        self._load(weights)
        self._model.eval()
        return measured_with_outputs(self._model, self._images, self._objective)

    def _load(self, weights: Weights) -> None:
        for name, array in self._layout.unpack(weights).items():
            self._views[name].copy_(torch.from_numpy(array))
        self._binding.load()

    def _result(self) -> Weights:
        weights = Weights(np.empty(self._layout.float_size, np.float32), np.empty(self._layout.counter_size, np.int64))
        for name, array in self._layout.unpack(weights).items():
            torch.from_numpy(array).copy_(self._views[name])
        return weights


def batches_of(lesson: Lesson, sizes: list[int], device: str = "cpu") -> Iterator[tuple[Tensor, Tensor | None]]:
    """The samples of every step, and how they are cropped."""
    order, crops = (None if part is None else torch.from_numpy(part).to(device) for part in (lesson.order, lesson.crops))
    assert order is not None
    for epoch in range(len(order)):
        cut_out = [None] * len(sizes) if crops is None else torch.split(crops[epoch].long(), sizes)
        yield from zip(torch.split(order[epoch], sizes), cut_out, strict=True)


def measured(model: nn.Module, images: Images, objective: Objective, generators: Sequence[str] = ()) -> Evaluated:
    """Loss and metric of a network as it stands on the whole test set; whoever calls asks for no gradients."""
    return measured_with_outputs(model, images, objective, generators)[0]


def measured_with_outputs(
    model: nn.Module, images: Images, objective: Objective, generators: Sequence[str] = ()
) -> tuple[Evaluated, Tensor]:
    loss, given = 0.0, []
    with seeded(0, generators):
        for first in range(0, len(images.y_test), EVALUATION_BATCH):
            x, y = (part[first : first + EVALUATION_BATCH] for part in (images.x_test, images.y_test))
            outputs = outputs_of(model, images.normalised(x))
            loss += objective.sum(outputs, y)
            given.append(outputs)
    whole = images.in_units(torch.cat(given))
    found = objective.metric(whole, images.in_units(images.y_test))
    return Evaluated(loss / len(images.y_test), found), whole


def outputs_of(model: nn.Module, images: Tensor) -> Tensor:
    """One row per image, also of a network that drops the axis of a batch of one (``squeeze``)."""
    outputs: Tensor = model(images)
    return outputs.unsqueeze(0) if len(images) == 1 and outputs.dim() == 1 else outputs


def needs_pairs(model: nn.Module, images: Images, config: LearningConfig, objective: Objective) -> bool:
    """Whether batches of two must not leave a single sample over. Leaves running statistics changed."""
    return config.batch_size == 2 and not trains_on_one(model, tuple(images.x_train.shape[1:]), objective)


def trains_on_one(model: nn.Module, shape: tuple[int, ...], objective: Objective) -> bool:
    """Whether a batch of one sample gives numbers: batch normalisation over nothing else knows no variance of one.

    The gradients too: that of a deviation of 0 is none. Leaves running statistics changed.
    """
    was_training = model.training
    device = next((tensor.device for tensor in state_tensors(model).values()), torch.device("cpu"))
    image = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.train()
    try:
        others = [str(device)] if device.type != "cpu" else []
        with torch.enable_grad(), seeded(0, others), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = outputs_of(model, image)
            loss = objective.mean(outputs, no_target(objective, outputs))
            gradients = torch.autograd.grad(loss, trained, allow_unused=True) if loss.requires_grad and trained else ()
            return all(bool(torch.isfinite(found).all()) for found in (outputs, *gradients) if found is not None)
    except Exception:
        return False
    finally:
        model.train(was_training)


def no_target(objective: Objective, outputs: Tensor) -> Tensor:
    """A target of zeros for every row of outputs."""
    if objective.learning.task != "classification":
        return torch.zeros_like(outputs)
    return torch.zeros(len(outputs), dtype=torch.int64, device=outputs.device)


def _view(flat: Tensor, entry: Entry) -> Tensor:
    """A tensor inside a flat vector; convolutions lie channels last, which is what makes them and their pooling fast."""
    part = flat[entry.offset : entry.offset + entry.size]
    if len(entry.shape) != 4:
        return part.view(entry.shape)
    outputs, inputs, height, width = entry.shape
    return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
