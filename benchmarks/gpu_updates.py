"""How long one local training of ResNet-18 takes on a GPU: one client at a time as one would write it, and stacked.

``python -m benchmarks.gpu_updates``: random images, 96 samples per client in batches of 32, proximal term on. With
``--kernels 60`` it tells where the time of one training of so many clients goes on the GPU, kernel by kernel.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fedtwin.config import LearningConfig
from fedtwin.learning.crops import draw_crops
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors.base import Workload
from fedtwin.learning.executors.cuda_flat import Task
from fedtwin.learning.executors.cuda_one_by_one import OneByOneTrainer
from fedtwin.learning.executors.cuda_trainers import Precision, make_trainer
from fedtwin.learning.lessons import Lesson
from fedtwin.learning.local import Images

SAMPLES, BATCH, CLIENTS, TEST_IMAGES = 96, 32, (1, 4, 15, 30, 45), 10_000
TRAININGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "usual": {"optimiser": "momentum", "weight_decay": 5e-4, "rate_schedule": "cosine", "augment": "crop-flip"},
    "clipped": {"optimiser": "momentum", "weight_decay": 5e-4, "rate_schedule": "cosine", "clip_norm": 1.0},
    "adam": {"optimiser": "adam", "rate_schedule": "cosine"},
}
SHAPES = {"32×32×3": (3, 32, 32), "28×28×1": (1, 28, 28)}


class Row(dict[str, float]):
    """Numbers by name, shown as they come."""

    def __setitem__(self, what: str, value: float) -> None:
        print(f"  {what}: {value:.2f}", file=sys.stderr, flush=True)
        super().__setitem__(what, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--shape", choices=list(SHAPES), default=None, help="both by default")
    parser.add_argument("--precision", choices=["mixed", "float32"], default="mixed")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--training", choices=list(TRAININGS), default="plain", help="how the stacked clients are trained")
    parser.add_argument(
        "--kernels", type=int, metavar="CLIENTS", default=None, help="the time of every kernel, and nothing else"
    )
    asked = parser.parse_args()
    if asked.kernels is not None:
        with tempfile.TemporaryDirectory() as folder:
            shape = SHAPES[asked.shape or next(iter(SHAPES))]
            tell_kernels(workload(Path(folder), asked.model, shape, TRAININGS[asked.training]), asked.precision, asked.kernels)
        return
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in [asked.shape] if asked.shape else SHAPES:
            print(name, file=sys.stderr)
            of = workload(Path(folder), asked.model, SHAPES[name], TRAININGS[asked.training])
            rows[name] = measure(of, asked.precision, asked.repeats)
    machine = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    print(f"{asked.model}, {asked.training}, {asked.precision}, {SAMPLES} samples, batches of {BATCH}, {machine}")
    print(f"{'images':<44}" + "".join(f"{name:>12}" for name in rows))
    for what in next(iter(rows.values())):
        print(f"{what:<44}" + "".join(f"{row[what]:>12.2f}" for row in rows.values()))
    print(json.dumps({"model": asked.model, "gpu": torch.cuda.get_device_name(), "rows": rows}, ensure_ascii=False))


def workload(folder: Path, model: str, shape: tuple[int, int, int], training: dict[str, Any]) -> Workload:
    channels, height, width = shape
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (5000 + TEST_IMAGES, height, width, channels), np.uint8)
    y = rng.integers(0, 10, len(x))
    path = folder / f"{height}.npz"
    np.savez(path, x_train=x[:5000], y_train=y[:5000], x_test=x[5000:], y_test=y[5000:])
    settings = {"batch_size": BATCH, "learning_rate": 0.01, "proximal": 0.005, **training}
    learning = LearningConfig(dataset=str(path), model=model, **settings)
    return Workload(learning, shape, 10, 0, max(CLIENTS))


def measure(of: Workload, precision: Precision, repeats: int) -> dict[str, float]:
    """Milliseconds per client update, and what else there is to know."""
    begun = time.perf_counter()
    row = Row()
    trainer, start = make_trainer(of, precision), of.initial()[1]
    first = trainer.adopt(start)
    rng = np.random.default_rng(1)

    def tasks(samples: list[int]) -> list[Task]:
        return [Task(first, lesson(of, rng.permutation(5000)[None, :count])) for count in samples]

    trainer.train(tasks([SAMPLES]))
    torch.cuda.synchronize()
    row["set-up and first training, s"] = time.perf_counter() - begun
    row["plain loop, ms per update"] = plain_loop(of)
    row["one by one on flat vectors, ms per update"] = one_by_one(of, repeats)
    row["one model, one batch of 96, float32, ms"] = one_batch(of, torch.float32, repeats)
    row["one model, one batch of 96, bfloat16, ms"] = one_batch(of, torch.bfloat16, repeats)
    for clients in CLIENTS:
        torch.cuda.reset_peak_memory_stats()
        batch = tasks([SAMPLES] * clients)
        row[f"stacked, {clients} clients, ms per update"] = median_ms(lambda t=batch: trainer.train(t), repeats) / clients  # type: ignore[misc]
    row["peak memory, GiB"] = torch.cuda.max_memory_allocated() / 2**30
    ragged = tasks(rng.integers(70, 101, 30).tolist())
    row["stacked, 30 clients of 70 to 100 samples, ms"] = median_ms(lambda: trainer.train(ragged), repeats) / 30
    row["evaluation on 10,000 images, ms"] = median_ms(lambda: trainer.evaluate([first]), repeats)
    return row


def tell_kernels(of: Workload, precision: Precision, clients: int) -> None:
    """Microseconds of GPU time per client update, of what runs there itself."""
    trainer, rng = make_trainer(of, precision), np.random.default_rng(1)
    first = trainer.adopt(of.initial()[1])
    batch = [Task(first, lesson(of, rng.permutation(5000)[None, :SAMPLES])) for _ in range(clients)]
    for _ in range(3):
        trainer.train(batch)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        trainer.train(batch)
        torch.cuda.synchronize()
    found = [(event.self_device_time_total / clients, event.count, event.key) for event in profile.key_averages()]
    print(f"{sum(time for time, _, _ in found):.1f} us in all, {clients} clients, {torch.cuda.get_device_name()}")
    for microseconds, count, name in sorted(found, reverse=True)[:20]:
        print(f"{microseconds:10.1f} us {count:6d} times  {name[:90]}")


def lesson(of: Workload, order: NDArray[np.int64]) -> Lesson:
    cropped = of.learning.augment != "none"
    return Lesson(order, of.learning.learning_rate, draw_crops(0, 0, 1, order.shape[1], 1) if cropped else None)


def median_ms(work: Callable[[], object], repeats: int) -> float:
    """The median after two warm-ups, the host's part included."""
    times = []
    for _ in range(repeats + 2):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times[2:])


def plain_loop(of: Workload, updates: int = 10) -> float:
    """One client at a time in plain PyTorch, as one would write it in an afternoon."""
    model, x, y = of.network().cuda(), *_images(of, 5000)
    start = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=of.learning.learning_rate)

    def update() -> None:
        model.load_state_dict(start)
        for batch in torch.split(torch.randperm(len(x), device="cuda")[:SAMPLES], BATCH):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            for name, parameter in model.named_parameters():
                loss = loss + of.learning.proximal / 2 * (parameter - start[name]).square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return median_ms(update, updates)


def one_by_one(of: Workload, repeats: int) -> float:
    """One client at a time, with the network's tensors as views of one vector: what serves a user's own network."""
    trainer = OneByOneTrainer(of.network(), Images(load_dataset(of.learning.dataset), "cuda"), of.learning)
    task = Task(trainer.adopt(of.initial()[1]), lesson(of, np.arange(SAMPLES)[None]))
    return median_ms(lambda: trainer.train([task]), repeats)


def one_batch(of: Workload, dtype: torch.dtype, repeats: int) -> float:
    """Forward and backward of one model on all samples at once, without launch gaps: what the libraries can do at best."""
    model, x, y = of.network().cuda(), *_images(of, SAMPLES)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = x.contiguous(memory_format=torch.channels_last)

    def pass_() -> None:
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not torch.float32, cache_enabled=False):
            loss = functional.cross_entropy(model(x).float(), y)
        loss.backward()  # type: ignore[no-untyped-call]

    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(aside):
        for _ in range(3):
            pass_()
    torch.cuda.synchronize()
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pass_()
    return median_ms(graph.replay, 3 * repeats)


def _images(of: Workload, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, *of.shape, device="cuda"), torch.randint(0, of.outputs, (count,), device="cuda")


if __name__ == "__main__":
    main()
