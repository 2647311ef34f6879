"""Who holds which samples of a configuration's data set. NumPy only."""

import numpy as np

from fedtwin.config import Config, LearningConfig
from fedtwin.learning.data import Dataset
from fedtwin.learning.partition import Indices, deal, natural_shares


def shares_of(config: Config, data: Dataset, devices: int | None = None) -> list[Indices]:
    """The training samples of every device: as the data has them, or dealt; without classes they are all dealt alike."""
    learning = config.learning or LearningConfig()
    count = config.fleet.devices if devices is None else devices
    if learning.partition == "natural":
        return natural_shares(data.clients, count, learning.dataset)
    gamma = learning.dirichlet_gamma if learning.partition == "dirichlet" else None
    labels = data.y_train if data.task == "classification" else np.zeros(len(data.y_train), np.int64)
    return deal(labels, config.run.seed, count, learning.owned_samples, gamma)
