"""What federation costs: centralised SGD beside the headline figure, as one would write it in plain PyTorch.

The same network, optimiser, batch size, clipping, augmentation and cosine as the figure's first curve, and as many sample
passes as its devices train on, over all training samples pooled and shuffled anew every epoch. Momentum is kept throughout,
where devices begin without any: that makes a step up to ten times as long, so a second number is at a rate of its own.

    fedtwin data fetch fashion-mnist
    python -m benchmarks.centralised quick          # the CPU, the figure's rate; full: CIFAR-10 on a GPU
    python -m benchmarks.centralised quick 0.01     # another rate
"""

import sys
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedtwin.config import Config, LearningConfig
from fedtwin.experiments.specs.figure import Profile, load_experiment
from fedtwin.learning.crops import OUTCOMES
from fedtwin.learning.data import load_dataset
from fedtwin.learning.local import Images
from fedtwin.learning.models import build_model
from fedtwin.sim import simulate

EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class Measured:
    """One centralised training."""

    seed: int
    passes: int
    steps: int
    seconds: float
    test_accuracy: float


def sample_passes(config: Config) -> int:
    """How many samples the devices of a run train on, all together: the schedule knows, without training."""
    assert config.learning is not None
    schedule = simulate(config.model_copy(update={"learning": None}))
    return int(schedule.rounds["samples"].to_numpy().sum()) * config.learning.local_epochs


def train_centrally(config: Config, passes: int, device: str) -> Measured:
    learning, seed = config.learning, config.run.seed
    assert learning is not None
    data = load_dataset(learning.dataset, learning)
    images = Images(data, device)
    model = build_model(learning.model, data.shape, data.outputs, seed).to(device)
    optimiser = torch.optim.SGD(
        model.parameters(), learning.learning_rate, momentum=learning.momentum, weight_decay=learning.weight_decay
    )
    steps = -(-passes // learning.batch_size)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    draws = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.int64)
    began = time.perf_counter()
    model.train()
    for _ in range(steps):
        if len(order) < learning.batch_size:
            order = torch.randperm(len(images.y_train), generator=draws)
        places, order = order[: learning.batch_size], order[learning.batch_size :]
        optimiser.zero_grad()
        loss = functional.cross_entropy(model(_batch(images, places, learning, draws)), images.y_train[places])
        loss.backward()  # type: ignore[no-untyped-call]
        if learning.clip_norm > 0.0:
            nn.utils.clip_grad_norm_(model.parameters(), learning.clip_norm)
        optimiser.step()
        falling.step()
    return Measured(seed, passes, steps, time.perf_counter() - began, _accuracy(model, images))


def _batch(images: Images, places: Tensor, learning: LearningConfig, draws: torch.Generator) -> Tensor:
    cropped = learning.augment == "crop-flip"
    crops = torch.randint(OUTCOMES, (len(places),), generator=draws).to(images.x_train.device) if cropped else None
    return images.batch(places.to(images.x_train.device), crops)


@torch.no_grad()
def _accuracy(model: nn.Module, images: Images) -> float:
    model.eval()
    right = 0
    for first in range(0, len(images.y_test), EVALUATION_BATCH):
        x, y = (part[first : first + EVALUATION_BATCH] for part in (images.x_test, images.y_test))
        right += int((model(images.normalised(x)).argmax(1) == y).sum())
    return right / len(images.y_test)


def main() -> None:
    profile: Profile = "full" if sys.argv[1:2] == ["full"] else "quick"
    rate = {"learning.learning_rate": float(sys.argv[2])} if len(sys.argv) > 2 else {}
    experiment = load_experiment("headline").with_changes(settings=rate)
    for name, _, config in experiment.configs(profile):
        if name == experiment.schemes[0]:
            assert config.learning is not None
            device = "cuda" if config.learning.executor == "cuda" else "cpu"
            found = train_centrally(config, sample_passes(config), device)
            work = f"{found.passes:,} sample passes in {found.steps:,} steps, {found.seconds:.0f} s"
            accuracy = f"test accuracy {100 * found.test_accuracy:.2f} %"
            print(f"seed {found.seed}, rate {config.learning.learning_rate}: {work}, {accuracy}", flush=True)


if __name__ == "__main__":
    main()
