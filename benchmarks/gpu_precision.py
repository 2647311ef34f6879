"""Mixed precision of the stacked trainer against PyTorch's own bfloat16, on the same network, samples, crops and rates.

``python -m benchmarks.gpu_precision docs/results/gpu_precision.csv`` (after ``fedtwin data fetch cifar-10``, on a GPU):
ResNet-18 by momentum, weight decay, the proximal term, crop and flip, at a rate at which the loss does not jump at first; 200
updates of 96 samples in a row, each from the model that the one before left, by three trainings side by side: ours, PyTorch's
under autocast to bfloat16, and PyTorch's in float32. Three seeds. The three drift apart, as any two that round differently do;
so what is compared is their loss in the mean over windows of 20 updates, and the error of single updates from one and the same
model.
"""

import argparse
import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedtwin.config import LearningConfig
from fedtwin.learning.crops import draw_crops
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors.base import Workload
from fedtwin.learning.executors.cuda_flat import Task
from fedtwin.learning.executors.cuda_trainers import make_trainer
from fedtwin.learning.layout import Layout, Weights
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Images, batches_of

SAMPLES, BATCH, UPDATES, SEEDS, WINDOW, SINGLES_EVERY = 96, 32, 200, 3, 20, 40
TRAINING: dict[str, Any] = {
    "optimiser": "momentum",
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "learning_rate": 0.01,
    "proximal": 0.005,
    "augment": "crop-flip",
    "batch_size": BATCH,
}
Losses = NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """Losses by seed and update, (seeds, updates); errors of single updates against float32, in parts of what that changes."""

    ours: Losses
    bfloat16: Losses
    float32: Losses
    our_errors: list[float]
    bfloat16_errors: list[float]

    @property
    def worst_window(self) -> float:
        """The largest difference between ours and bfloat16's mean loss of a window, over the seeds' mean, in parts of it."""
        ours, theirs = (_windows(losses) for losses in (self.ours, self.bfloat16))
        return float(np.max(np.abs(ours - theirs) / theirs))

    @property
    def whole(self) -> float:
        """The difference of the mean over all updates and seeds, in parts of bfloat16's."""
        return float(self.ours.mean() / self.bfloat16.mean() - 1.0)

    @property
    def rounding_alone(self) -> float:
        """What ``worst_window`` is between bfloat16 and float32, both PyTorch's."""
        theirs, exact = (_windows(losses) for losses in (self.bfloat16, self.float32))
        return float(np.max(np.abs(theirs - exact) / exact))

    @property
    def error_ratio(self) -> float:
        """How far our single updates are from float32's, over how far bfloat16's are: medians."""
        return float(np.median(self.our_errors) / np.median(self.bfloat16_errors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", type=Path, nargs="?", default=None)
    parser.add_argument("--dataset", default="cifar-10")
    parser.add_argument("--updates", type=int, default=UPDATES)
    asked = parser.parse_args()
    if asked.updates < WINDOW or asked.updates % WINDOW:
        parser.error(f"--updates {asked.updates} is no multiple of {WINDOW}")
    found = compare(asked.dataset, asked.updates)
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {asked.dataset}, {SEEDS} seeds, {asked.updates} updates"
    )
    print(f"{'updates':>12}{'ours':>10}{'bfloat16':>10}{'float32':>10}")
    for k, row in enumerate(np.stack([_windows(part) for part in (found.ours, found.bfloat16, found.float32)], axis=1)):
        print(f"{f'{k * WINDOW} to {(k + 1) * WINDOW - 1}':>12}" + "".join(f"{value:>10.4f}" for value in row))
    print(f"worst window {found.worst_window:.2%}, whole {found.whole:+.2%}, rounding alone {found.rounding_alone:.2%}")
    print(f"single updates against float32: ours {_range(found.our_errors)}, bfloat16 {_range(found.bfloat16_errors)}")
    print(f"ratio of the medians {found.error_ratio:.3f}")
    if asked.csv is not None:
        write(asked.csv, found)


def compare(dataset: str, updates: int = UPDATES, seeds: int = SEEDS) -> Compared:
    """All of it; ``dataset`` is what ``learning.dataset`` may be."""
    learning = LearningConfig(dataset=dataset, model="resnet18", **TRAINING)
    data = load_dataset(dataset)
    works = [Workload(learning, data.shape, data.outputs, seed, seeds) for seed in range(seeds)]
    lessons = [[_lesson(seed, k, len(data.y_train)) for k in range(updates)] for seed in range(seeds)]
    initial = [work.initial()[1] for work in works]
    trainer = make_trainer(works[0], "mixed")
    models, ours, singles = [trainer.adopt(start) for start in initial], np.empty((seeds, updates)), []
    for k in range(updates):
        before = models
        trained = trainer.train([Task(model, lessons[seed][k]) for seed, model in enumerate(models)])
        models, ours[:, k] = [one.weights for one in trained], [one.train_loss for one in trained]
        if k % SINGLES_EVERY == 0:
            singles += [(seed, k, trainer.host(before[seed]), trainer.host(models[seed])) for seed in range(seeds)]
    images, plain = Images(data, "cuda"), {}
    errors: dict[torch.dtype, list[Tensor]] = {torch.bfloat16: [], torch.float32: []}
    for dtype in (torch.bfloat16, torch.float32):
        torch_loop = PlainLoop(works[0], images, dtype)
        plain[dtype] = np.array([_curve(torch_loop, initial[seed], lessons[seed]) for seed in range(seeds)])
        for seed, k, start, _ in singles:
            torch_loop.load(start)
            torch_loop.train(lessons[seed][k])
            errors[dtype].append(torch_loop.parameters())
    loop = PlainLoop(works[0], images, torch.float32)
    our_errors, theirs = [], []
    for (_, _, start, after), half, exact in zip(singles, errors[torch.bfloat16], errors[torch.float32], strict=True):
        mine, origin = (loop.parameters_of(weights) for weights in (after, start))
        change = torch.linalg.vector_norm(exact - origin)
        our_errors.append(float(torch.linalg.vector_norm(mine - exact) / change))
        theirs.append(float(torch.linalg.vector_norm(half - exact) / change))
    return Compared(ours, plain[torch.bfloat16], plain[torch.float32], our_errors, theirs)


class PlainLoop:
    """One model by PyTorch's own modules, autocast and automatic differentiation; one step is recorded and played."""

    def __init__(self, of: Workload, images: Images, dtype: torch.dtype) -> None:
        self._images, self._learning = images, of.learning
        self._layout: Layout = of.initial()[0]
        self._model = of.network().cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._dtype = dtype
        self._weights = list(self._model.parameters())
        self._start = [torch.zeros_like(p) for p in self._weights]
        self._pace = [torch.zeros_like(p) for p in self._weights]
        self._x = torch.zeros(BATCH, *of.shape, device="cuda").contiguous(memory_format=torch.channels_last)
        self._y = torch.zeros(BATCH, dtype=torch.int64, device="cuda")
        self._loss = torch.zeros((), device="cuda")
        self._step = self._recorded()

    def load(self, weights: Weights) -> None:
        state = self._layout.unpack(weights)
        self._model.load_state_dict({name: torch.from_numpy(np.array(tensor)) for name, tensor in state.items()})

    def train(self, lesson: Lesson) -> float:
        """The mean loss of the samples, each before the step that it is in."""
        torch._foreach_copy_(self._start, self._weights)
        torch._foreach_zero_(self._pace)
        total = torch.zeros((), device="cuda")
        for batch, crops in batches_of(lesson, [BATCH] * (SAMPLES // BATCH), "cuda"):
            self._x.copy_(self._images.batch(batch, crops))
            self._y.copy_(self._images.y_train[batch])
            self._step()
            total += self._loss * BATCH
        return float(total) / SAMPLES

    def parameters(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self._weights]).clone()

    def parameters_of(self, weights: Weights) -> Tensor:
        self.load(weights)
        return self.parameters()

    def _one_step(self) -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=self._dtype is torch.bfloat16, cache_enabled=False):
            loss = functional.cross_entropy(self._model(self._x).float(), self._y)
        gradients = list(torch.autograd.grad(loss, self._weights))
        with torch.no_grad():
            self._loss.copy_(loss)
            pull = torch._foreach_sub(self._weights, self._start)
            torch._foreach_add_(gradients, pull, alpha=self._learning.proximal)
            torch._foreach_add_(gradients, self._weights, alpha=self._learning.weight_decay)
            torch._foreach_mul_(self._pace, self._learning.momentum)
            torch._foreach_add_(self._pace, gradients)
            torch._foreach_add_(self._weights, self._pace, alpha=-self._learning.learning_rate)

    def _recorded(self) -> Callable[[], None]:
        self._model.train()
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._one_step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._one_step()
        return graph.replay


def _curve(loop: PlainLoop, start: Weights, lessons: Iterable[Lesson]) -> list[float]:
    loop.load(start)
    return [loop.train(lesson) for lesson in lessons]


def _lesson(seed: int, update: int, images: int) -> Lesson:
    order = np.random.default_rng([seed, update]).permutation(images)[None, :SAMPLES]
    return Lesson(order, TRAINING["learning_rate"], draw_crops(seed, 0, update, SAMPLES, 1))


def _windows(losses: Losses) -> Losses:
    """The mean over all seeds and ``WINDOW`` updates."""
    found: Losses = losses.mean(0).reshape(-1, WINDOW).mean(1)
    return found


def _range(errors: list[float]) -> str:
    return f"{min(errors):.3f} to {max(errors):.3f}, median {np.median(errors):.3f}"


def write(path: Path, found: Compared) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["seed", "update", "ours", "bfloat16", "float32"])
        for seed, curves in enumerate(zip(found.ours, found.bfloat16, found.float32, strict=True)):
            rows.writerows(
                [seed, k, *(f"{value:.6f}" for value in values)] for k, values in enumerate(zip(*curves, strict=True))
            )


if __name__ == "__main__":
    main()
