"""What the trainers on the GPU share: their task, and where a model's tensors lie in one flat vector there."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedtwin.learning.layout import Counters, Entry, Weights
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Evaluated, Trained, model_layout
from fedtwin.learning.partition import Indices

EVALUATION_BATCH = 1000
ALIGNMENT = 64


class Task(NamedTuple):
    """One local training: the model it starts from, and all else."""

    start: Weights
    lesson: Lesson


class Trainer(Protocol):
    """What a hub asks to do the work. Weights are flat tensors on the GPU; their order is the trainer's own.

    To begin may wait for the GPU or not; what it returns is called once, maybe in another thread, and waits for what came out.
    """

    def adopt(self, weights: Weights) -> Weights: ...

    def host(self, weights: Weights) -> Weights: ...

    def begin_training(self, tasks: list[Task]) -> Callable[[], list[Trained]]: ...

    def begin_evaluation(self, models: list[Weights]) -> Callable[[], list[Evaluated]]: ...

    def train(self, tasks: list[Task]) -> list[Trained]:
        return self.begin_training(tasks)()

    def evaluate(self, models: list[Weights]) -> list[Evaluated]:
        return self.begin_evaluation(models)()


class FlatOrder:
    """Parameters, then buffers, each tensor at a multiple of 256 bytes, as GPU libraries want them; the gaps stay zero.

    ``first`` names parameters that are to lie before all others. With ``channels_last``, convolutions lie (out, h, w, in).
    """

    def __init__(self, model: nn.Module, device: str, first: set[str], *, channels_last: bool) -> None:
        layout, parameters = model_layout(model), {name for name, _ in model.named_parameters()}
        mixed = [entry for entry in layout.entries if not entry.counter]
        self.entries = sorted(mixed, key=lambda entry: (entry.name not in first, entry.name not in parameters))
        self._device, self._channels_last = device, channels_last
        self.offsets: dict[str, int] = {}
        self.size = self.parameter_size = self.first_size = 0
        self._places = np.empty(layout.float_size, np.int64)
        for entry in self.entries:
            self.offsets[entry.name] = self.size
            self._places[entry.offset : entry.offset + entry.size] = self.size + self._inside(entry)
            self.size += -(-entry.size // ALIGNMENT) * ALIGNMENT
            self.parameter_size = self.size if entry.name in parameters else self.parameter_size
            self.first_size = self.size if entry.name in first else self.first_size

    def shape(self, entry: Entry) -> tuple[int, ...]:
        """The shape in which the tensor lies."""
        shape = entry.shape
        return (shape[0], *shape[2:], shape[1]) if len(shape) == 4 and self._channels_last else shape

    def view(self, flat: Tensor, entry: Entry) -> Tensor:
        """One tensor inside a flat vector, or of every client inside (client, …) flat vectors."""
        offset = self.offsets[entry.name]
        return flat[..., offset : offset + entry.size].view((*flat.shape[:-1], *self.shape(entry)))

    def adopt(self, weights: Weights) -> Weights:
        flat = np.zeros(self.size, np.float32)
        flat[self._places] = weights.floats
        return as_weights(torch.from_numpy(flat).to(self._device), weights.counters)

    def host(self, weights: Weights) -> Weights:
        return Weights(as_tensor(weights).cpu().numpy()[self._places], weights.counters)

    def _inside(self, entry: Entry) -> Indices:
        """For every element in the usual order, where it lies from the tensor's beginning."""
        places = np.arange(entry.size).reshape(self.shape(entry))
        return (np.moveaxis(places, -1, 1) if self._channels_last and places.ndim == 4 else places).ravel()


def as_tensor(weights: Weights) -> Tensor:
    return cast(Tensor, cast(Any, weights.floats))


def as_weights(floats: Tensor, counters: Counters) -> Weights:
    return Weights(cast(Any, floats), counters)


def loss_and_correct(outputs: Tensor, labels: Tensor) -> Tensor:
    loss = functional.cross_entropy(outputs.float(), labels, reduction="sum")
    return torch.stack([loss.double(), (outputs.argmax(1) == labels).sum().double()])


def as_evaluated(totals: list[Tensor], count: int) -> Callable[[], list[Evaluated]]:
    """Of all of them with one wait for the GPU."""
    if not totals:
        return list
    later = on_its_way(torch.stack(totals))
    return lambda: [Evaluated(float(loss) / count, float(correct) / count) for loss, correct in later()]


def on_its_way(tensor: Tensor) -> Callable[[], NDArray[Any]]:
    """To this machine's memory, without a wait: not even for what the GPU is given to do afterwards."""
    if not tensor.is_cuda:
        return tensor.numpy
    here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    here.copy_(tensor, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record()

    def wait() -> NDArray[Any]:
        arrived.synchronize()
        return here.numpy()

    return wait
