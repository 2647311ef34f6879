"""A real agent with a training that leaves a mark: it adds 1 to entry ``round`` of the model. For ``tests/live/chaos.py``.

python -m tests.live.adding_device NAME URL RUN [TRAINING_S]
"""

import random
import sys
import time

import numpy as np

from fedtwin import live
from fedtwin.config import Config
from fedtwin.live import Update, logs
from fedtwin.live.wire.tensors import Codec, read_model

SAMPLES = 50


class AddingTrainer:
    def __init__(self, most_s: float) -> None:
        self._most_s = most_s

    def prepare(self, config: Config) -> int:  # noqa: ARG002
        return SAMPLES

    def train(self, model: bytes, round_: int) -> Update:
        time.sleep(random.uniform(0.0, self._most_s))  # so that most kills meet a task in flight
        layout, weights = read_model(model, "task")
        floats = np.array(weights.floats)
        floats[round_ % len(floats)] += 1.0
        return Update(Codec(layout).encode(weights._replace(floats=floats)), float(round_))

    def stop(self) -> None:
        pass


def main() -> None:
    name, url, run, *rest = sys.argv[1:]
    logs.set_up("debug", "json")
    live.run_device(name, [url], AddingTrainer(float(rest[0]) if rest else 0.03), run=run)


if __name__ == "__main__":
    main()
