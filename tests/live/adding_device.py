"""A real agent with a training that leaves a mark: it adds 1 to entry ``round`` of the model. For ``tests/live/chaos.py``.

python -m tests.live.adding_device NAME URL RUN [TRAINING_S] [CHANGE ...]

With changes it adds these to the first entries, each time the same.
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
    def __init__(self, most_s: float, change: list[float]) -> None:
        self._most_s, self._change = most_s, change

    def prepare(self, config: Config) -> int:  # noqa: ARG002
        return SAMPLES

    def train(self, model: bytes, round_: int) -> Update:
        time.sleep(random.uniform(0.0, self._most_s))  # so that most kills meet a task in flight
        layout, weights = read_model(model, "task")
        floats = np.array(weights.floats)
        if self._change:
            floats[: len(self._change)] += np.array(self._change, np.float32)
        else:
            floats[round_ % len(floats)] += 1.0
        return Update(Codec(layout).encode(weights._replace(floats=floats)), float(round_))

    def stop(self) -> None:
        pass


def main() -> None:
    name, url, run, *rest = sys.argv[1:]
    logs.set_up("debug", "json")
    most_s, *change = map(float, rest or ["0.03"])
    live.run_device(name, [url], AddingTrainer(most_s, change), run=run)


if __name__ == "__main__":
    main()
