"""Local training and evaluation of one model at a time: the readable reference, and what a device runs.

The network's tensors are views of one flat vector, so a step of SGD with the proximal term is two vector operations.
"""

import warnings
import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedtwin.config import LearningConfig
from fedtwin.learning.binding import Binding, state_tensors
from fedtwin.learning.data import Dataset
from fedtwin.learning.layout import Entry, Layout, Weights, layout_of
from fedtwin.learning.partition import Indices, batch_sizes

EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Trained:
    """What comes back from one local training."""

    weights: Weights
    train_loss: float
    finite: bool


@dataclass(frozen=True)
class Evaluated:
    """Loss and accuracy on the test set."""

    test_loss: float
    test_accuracy: float


def model_layout(model: nn.Module) -> Layout:
    return layout_of({n: (tuple(t.shape), not t.is_floating_point()) for n, t in state_tensors(model).items()})


def initial_weights(model: nn.Module) -> Weights:
    tensors = {name: tensor.detach().cpu().numpy() for name, tensor in state_tensors(model).items()}
    return model_layout(model).pack(tensors)


class Images:
    """The data set as tensors; a batch is normalised when it is taken."""

    def __init__(self, data: Dataset, device: str = "cpu") -> None:
        mean, std = data.normalisation()
        self._mean, self._scale = (torch.from_numpy(v).to(device).view(-1, 1, 1) for v in (mean, 1.0 / std))
        self.x_train, self.x_test = (
            torch.from_numpy(np.array(x.transpose(0, 3, 1, 2), order="C")).to(device) for x in (data.x_train, data.x_test)
        )
        self.y_train, self.y_test = (torch.from_numpy(y.astype(np.int64)).to(device) for y in (data.y_train, data.y_test))

    def normalised(self, x: Tensor) -> Tensor:
        return ((x.float() - self._mean) * self._scale).contiguous(memory_format=torch.channels_last)


class LocalTrainer:
    """One network, bound to flat vectors, trained from any model on any samples."""

    def __init__(self, model: nn.Module, images: Images, config: LearningConfig) -> None:
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
        self._pairs = needs_pairs(model, images, config)

    def train(self, start: Weights, order: Indices) -> Trained:
        """min L_n(w) + (m/2) ‖w − w_download‖² by SGD (Section III-B), over the samples in ``order`` (epochs, samples).

        A network that draws (dropout) draws the same for the same order, which is the same for the same device and round.
        """
        self._load(start)
        self._model.train()
        anchor = self._parameters.clone()
        rate, pull = self._config.learning_rate, self._config.learning_rate * self._config.proximal
        sizes = batch_sizes(order.shape[1], self._config.batch_size, pairs=self._pairs)
        losses = []
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(zlib.crc32(order.tobytes()))
            for epoch in torch.from_numpy(order):
                for batch in torch.split(epoch, sizes):
                    self._gradient.zero_()
                    outputs = outputs_of(self._model, self._images.normalised(self._images.x_train[batch]))
                    loss = functional.cross_entropy(outputs, self._images.y_train[batch])
                    loss.backward()  # type: ignore[no-untyped-call]
                    self._binding.keep_parameters()
                    self._parameters.lerp_(anchor, pull).add_(self._gradient, alpha=-rate)
                    losses.append(loss.detach() * len(batch))
        self._binding.keep_buffers()
        self._binding.require_the_same_tensors()
        mean_loss = float(torch.stack(losses).sum()) / order.size
        return Trained(self._result(), mean_loss, bool(torch.isfinite(self._floats).all()))

    @torch.no_grad()
    def evaluate(self, weights: Weights) -> Evaluated:
        """On the whole test set. A network that draws here too draws the same every time."""
        self._load(weights)
        self._model.eval()
        loss, correct = 0.0, 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for first in range(0, len(self._images.y_test), EVALUATION_BATCH):
                x, y = (part[first : first + EVALUATION_BATCH] for part in (self._images.x_test, self._images.y_test))
                outputs = outputs_of(self._model, self._images.normalised(x))
                loss += float(functional.cross_entropy(outputs, y, reduction="sum"))
                correct += int((outputs.argmax(1) == y).sum())
        count = len(self._images.y_test)
        return Evaluated(loss / count, correct / count)

    def _load(self, weights: Weights) -> None:
        for name, array in self._layout.unpack(weights).items():
            self._views[name].copy_(torch.from_numpy(array))
        self._binding.load()

    def _result(self) -> Weights:
        weights = Weights(np.empty(self._layout.float_size, np.float32), np.empty(self._layout.counter_size, np.int64))
        for name, array in self._layout.unpack(weights).items():
            torch.from_numpy(array).copy_(self._views[name])
        return weights


def outputs_of(model: nn.Module, images: Tensor) -> Tensor:
    """One row per image, also of a network that drops the axis of a batch of one (``squeeze``)."""
    outputs: Tensor = model(images)
    return outputs.unsqueeze(0) if len(images) == 1 and outputs.dim() == 1 else outputs


def needs_pairs(model: nn.Module, images: Images, config: LearningConfig) -> bool:
    """Whether batches of two must not leave a single sample over. Leaves running statistics changed."""
    return config.batch_size == 2 and not trains_on_one(model, tuple(images.x_train.shape[1:]))


def trains_on_one(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether a batch of one sample gives numbers: batch normalisation over nothing else knows no variance of one.

    The gradients too: that of a deviation of 0 is none. Leaves running statistics changed.
    """
    was_training = model.training
    device = next((tensor.device for tensor in state_tensors(model).values()), torch.device("cpu"))
    image = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.train()
    try:
        others = [device] if device.type != "cpu" else []
        with torch.enable_grad(), torch.random.fork_rng(devices=others), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = outputs_of(model, image)
            loss = functional.cross_entropy(outputs, torch.zeros(1, dtype=torch.int64, device=device))
            gradients = torch.autograd.grad(loss, trained, allow_unused=True) if loss.requires_grad and trained else ()
            return all(bool(torch.isfinite(found).all()) for found in (outputs, *gradients) if found is not None)
    except Exception:
        return False
    finally:
        model.train(was_training)


def _view(flat: Tensor, entry: Entry) -> Tensor:
    """A tensor inside a flat vector; convolutions lie channels last, which is what makes them and their pooling fast."""
    part = flat[entry.offset : entry.offset + entry.size]
    if len(entry.shape) != 4:
        return part.view(entry.shape)
    outputs, inputs, height, width = entry.shape
    return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
