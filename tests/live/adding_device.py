"""A real agent with a training that leaves a mark: it adds 1 to entry ``round`` of the model. For ``tests/live/chaos.py``.

python -m tests.live.adding_device NAME URL RUN
"""

import random
import sys
import time

import numpy as np

from fedtwin.config import Config
from fedtwin.live import logs
from fedtwin.live.device.agent import Agent, AgentOptions
from fedtwin.live.device.trainers import Update
from fedtwin.live.event_loop import serve
from fedtwin.live.wire.tensors import Codec, read_model

SAMPLES = 50


class AddingTrainer:
    def prepare(self, config: Config) -> int:  # noqa: ARG002
        return SAMPLES

    def train(self, model: bytes, round_: int) -> Update:
        time.sleep(random.uniform(0.0, 0.03))  # so that most kills meet a task in flight
        layout, weights = read_model(model, "task")
        floats = np.array(weights.floats)
        floats[round_ % len(floats)] += 1.0
        return Update(Codec(layout).encode(weights._replace(floats=floats)), float(round_))

    def stop(self) -> None:
        pass


def main() -> None:
    name, url, run = sys.argv[1:]
    logs.set_up("debug", "json")

    def make() -> object:
        agent = Agent(AgentOptions(name, [url], AddingTrainer(), run=run))
        return agent.run(), agent.stop

    serve(make)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
