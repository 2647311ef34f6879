"""What a local training is told beside the model it starts from: the same for every executor, and for a board."""

from typing import NamedTuple

from fedtwin.config import Config
from fedtwin.learning.crops import Crops, draw_crops
from fedtwin.learning.partition import Indices, training_order
from fedtwin.learning.rates import rate_of


class Lesson(NamedTuple):
    """The samples in order (epochs, samples), the learning rate, and how every image of them is cropped, if at all."""

    order: Indices
    rate: float
    crops: Crops | None = None


def lesson_of(config: Config, share: Indices, device: int, round_: int, samples: int) -> Lesson:
    """The training of a device that was asked in this round, on so many of the samples it owns."""
    learning, seed = config.learning, config.run.seed
    if learning is None:
        raise ValueError("a run without [learning] has no lessons")
    order = training_order(share, seed, device, round_, samples, learning.local_epochs)
    cropped = learning.augment == "crop-flip"
    crops = draw_crops(seed, device, round_, samples, learning.local_epochs) if cropped else None
    return Lesson(order, rate_of(config, round_), crops)
