"""The baseline: FedAsync as one would write it in an afternoon, plain PyTorch, one client at a time, all cores as threads.

The same fleet, the same data, the same schedule of who trains on how many samples; no records, no clock.
"""

import copy
import heapq
import time

import torch
from torch import nn
from torch.nn import functional

from fedtwin.config import Config
from fedtwin.learning.data import load_dataset
from fedtwin.learning.models import build_model
from fedtwin.learning.partition import deal, training_order
from fedtwin.sim.engine import Engine


def run_plain_loop(config: Config, updates: int, threads: int) -> float:
    """Updates per second of the training loop alone, set-up left out."""
    learning = config.learning
    assert learning is not None
    torch.set_num_threads(threads)
    data = load_dataset(learning.dataset)
    x = torch.tensor(data.x_train.transpose(0, 3, 1, 2) / 255.0, dtype=torch.float32)
    x = (x - x.mean()) / x.std()
    y = torch.tensor(data.y_train.astype("int64"))
    world = Engine(config).world
    shares = deal(data.y_train, config.run.seed, len(world.fleet), learning.owned_samples, None)
    model = build_model(learning.model, data.shape, data.outputs, 0)
    weights = copy.deepcopy(model.state_dict())
    in_flight = [(0.01 * n, n, 0, copy.deepcopy(weights)) for n in range(config.fleet.channels)]
    heapq.heapify(in_flight)
    idle = list(range(config.fleet.channels, len(world.fleet)))
    warm_up = 10
    begun = 0.0
    for version in range(updates + warm_up):
        if version == warm_up:
            begun = time.perf_counter()
        at_s, device, downloaded, start = heapq.heappop(in_flight)
        order = training_order(shares[device], 0, device, version, world.fleet[device].samples, learning.local_epochs)
        _train(model, start, x, y, torch.from_numpy(order), learning.learning_rate, learning.proximal, learning.batch_size)
        rho = learning.mixing * (version - downloaded + 1) ** -learning.staleness_exponent
        local = model.state_dict()
        weights = {name: (1 - rho) * weights[name] + rho * local[name] for name in weights}
        idle.append(device)
        heapq.heappush(in_flight, (at_s + 0.6, idle.pop(0), version + 1, copy.deepcopy(weights)))
    return updates / (time.perf_counter() - begun)


def _train(
    model: nn.Module, start: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor, order: torch.Tensor,
    rate: float, proximal: float, batch_size: int,
) -> None:  # fmt: skip
    model.load_state_dict(start)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in order:
        for first in range(0, len(epoch), batch_size):
            batch = epoch[first : first + batch_size]
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            for name, parameter in model.named_parameters():
                loss = loss + proximal / 2 * (parameter - start[name]).square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
