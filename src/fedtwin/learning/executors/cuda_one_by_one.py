"""Training on the GPU one client after the other: what serves a user's own network."""

import zlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedtwin.config import LearningConfig
from fedtwin.learning.binding import Binding
from fedtwin.learning.chance import seeded
from fedtwin.learning.executors.cuda_flat import FlatOrder, Task, Trainer, as_tensor, as_weights, on_its_way
from fedtwin.learning.layout import Weights
from fedtwin.learning.local import Evaluated, Images, Trained, batches_of, measured, model_layout, needs_pairs, outputs_of
from fedtwin.learning.objectives import Descent, objective_of
from fedtwin.learning.partition import batch_sizes


class OneByOneTrainer(Trainer):
    """One client after the other on the GPU, for any network: the network's tensors are views of one flat vector."""

    def __init__(
        self, model: nn.Module, images: Images, config: LearningConfig, device: str = "cuda", folder: str | None = None
    ) -> None:
        self._objective = objective_of(config, folder)
        self._model, self._images, self._config, self._device = model.to(device), images, config, device
        self._generators = [] if device == "cpu" else [device]
        self._flat = FlatOrder(model, device, set(), channels_last=False)
        self._floats = torch.zeros(self._flat.size, device=device)
        self._counters = torch.zeros(model_layout(model).counter_size, dtype=torch.int64, device=device)
        self._parameters = self._floats[: self._flat.parameter_size]
        self._gradient = torch.zeros_like(self._parameters)
        entries = {entry.name: entry for entry in model_layout(model).entries}
        views = {
            name: self._counters[e.offset : e.offset + e.size].view(e.shape) if e.counter else self._flat.view(self._floats, e)
            for name, e in entries.items()
        }
        gradients = {name: self._flat.view(self._gradient, entries[name]) for name, _ in model.named_parameters()}
        self._binding = Binding(model, views, gradients, f"learning.model = {config.model!r}")
        self._pairs = needs_pairs(model, images, config, self._objective)

    def adopt(self, weights: Weights) -> Weights:
        return self._flat.adopt(weights)

    def host(self, weights: Weights) -> Weights:
        return self._flat.host(weights)

    def begin_training(self, tasks: list[Task]) -> Callable[[], list[Trained]]:
        models, summaries, counters = zip(*(self._train(task) for task in tasks), strict=True)
        numbers, counted = on_its_way(torch.stack(summaries)), on_its_way(torch.stack(counters))
        return lambda: [
            Trained(as_weights(floats, count), float(loss) / task.lesson.order.size, bool(finite))
            for task, floats, (loss, finite), count in zip(tasks, models, numbers(), counted(), strict=True)
        ]

    def begin_evaluation(self, models: list[Weights]) -> Callable[[], list[Evaluated]]:
        found = [self._evaluate(model) for model in models]
        return lambda: found

    def _train(self, task: Task) -> tuple[Tensor, Tensor, Tensor]:
        self._load(task.start)
        self._model.train()
        order, rate, _ = task.lesson
        descent = Descent(self._objective, self._model.parameters(), self._parameters, self._gradient, rate)
        total = torch.zeros((), device=self._device)
        sizes = batch_sizes(order.shape[1], self._config.batch_size, pairs=self._pairs)
        with torch.enable_grad(), seeded(zlib.crc32(order.tobytes()), self._generators):
            for batch, crops in batches_of(task.lesson, sizes, self._device):
                self._gradient.zero_()
                outputs = outputs_of(self._model, self._images.batch(batch, crops))
                loss = self._objective.mean(outputs, self._images.y_train[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                self._binding.keep_parameters()
                descent.step()
                total += loss.detach() * len(batch)
        self._binding.keep_buffers()
        self._binding.require_the_same_tensors()
        finite = self._floats.isfinite().all().to(total.dtype)
        return self._floats.clone(), torch.stack([total, finite]), self._counters.clone()

    @torch.no_grad()
    def _evaluate(self, weights: Weights) -> Evaluated:
        self._load(weights)
        self._model.eval()
        return measured(self._model, self._images, self._objective, self._generators)

    def _load(self, weights: Weights) -> None:
        self._floats.copy_(as_tensor(weights))
        self._counters.copy_(torch.from_numpy(weights.counters))
        self._binding.load()
