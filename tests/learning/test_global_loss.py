"""The global loss and its gradient against an independent computation, and in the records of a run."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn import functional

from fedtwin.config import Config, config_hash, load_config
from fedtwin.learning.data import load_dataset
from fedtwin.learning.executors import make_workload
from fedtwin.learning.global_loss import GlobalLoss
from fedtwin.learning.layout import Weights
from fedtwin.learning.partition import deal
from fedtwin.sim import resume, simulate


def training(**changes: Any) -> Config:
    base = {"learning.dataset": "digits", "learning.executor": "serial", "run.rounds": 40, "learning.evaluate_every_s": 0.5}
    return load_config(overrides={**base, "learning.record_gradient": True, **changes})


def at(config: Config, seed: int) -> tuple[GlobalLoss, Weights, list[np.ndarray]]:
    """The loss of a fleet, and a model somewhere off the first one."""
    assert config.learning is not None
    data = load_dataset(config.learning.dataset)
    workload = make_workload(config, data.shape, data.outputs)
    shares = deal(data.y_train, config.run.seed, config.fleet.devices, config.learning.owned_samples, 0.5)
    _, weights = workload.initial()
    noise = np.random.default_rng(seed).normal(0, 0.05, weights.floats.shape).astype(np.float32)
    return GlobalLoss(workload, shares), Weights(weights.floats + noise, weights.counters), shares


def plainly(config: Config, weights: Weights, shares: list[np.ndarray]) -> tuple[float, np.ndarray]:
    """Σ D_n L_n / D by hand, device by device, in double precision."""
    data = load_dataset("digits")
    by = data.normalisation()
    mean, std = np.array(by.mean, np.float32), np.array(by.std, np.float32)
    x = torch.tensor(((data.x_train.astype(np.float64) - mean) / std).transpose(0, 3, 1, 2))
    workload = make_workload(config, data.shape, data.outputs)
    network, (layout, _) = workload.network().double(), workload.initial()
    network.load_state_dict({name: torch.tensor(array.astype(np.float64)) for name, array in layout.unpack(weights).items()})
    total = torch.zeros((), dtype=torch.float64)
    for share in shares:
        own = functional.cross_entropy(network(x[share]), torch.tensor(data.y_train[share].astype(np.int64)))
        total = total + len(share) * own
    loss = total / sum(len(share) for share in shares)
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    return float(loss.detach()), torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy()


def test_loss_and_gradient_are_those_of_the_devices_one_after_the_other() -> None:
    config = training()
    loss, weights, shares = at(config, 1)
    assert len(np.unique(np.concatenate(shares))) < sum(map(len, shares)), "some samples are held twice"
    found, (expected, gradient) = loss.at(weights), plainly(config, weights, shares)
    assert found.loss == pytest.approx(expected, rel=1e-5)
    assert np.linalg.norm(found.gradient - gradient) < 1e-5 * np.linalg.norm(gradient)
    assert found.norm2 == pytest.approx(float(gradient @ gradient), rel=1e-5)


def test_the_gradient_is_the_slope_of_the_loss_along_a_line() -> None:
    config = training()
    loss, weights, shares = at(config, 2)
    drawn = np.random.default_rng(3).normal(size=weights.floats.shape)
    line = (drawn / np.linalg.norm(drawn)).astype(np.float32)
    ahead, behind = (
        plainly(config, Weights((weights.floats + sign * 1e-2 * line).astype(np.float32), weights.counters), shares)[0]
        for sign in (1, -1)
    )
    slope = (ahead - behind) / 2e-2
    assert abs(slope) > 1e-3 and float(loss.at(weights).gradient @ line) == pytest.approx(slope, rel=1e-3)


def test_every_executor_of_the_cpu_records_the_same_and_a_resumed_run_too(tmp_path: Path) -> None:
    serial, processes = (simulate(training(**{"learning.executor": name})) for name in ("serial", "processes"))
    assert serial.evaluations == processes.evaluations
    assert all(one.global_loss is not None and one.gradient_norm2 is not None for one in serial.evaluations)

    def stop(row: Any) -> None:
        if row.round == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(training(), out=tmp_path / "run", on_round=stop, checkpoint_every_s=0.0)
    assert resume(tmp_path / "run").evaluations == serial.evaluations
    table = pq.read_table(tmp_path / "run" / "evaluations.parquet")
    assert table["gradient_norm2"].to_pylist() == [one.gradient_norm2 for one in serial.evaluations]


def test_without_it_the_columns_are_null_and_the_configuration_has_the_hash_it_had(tmp_path: Path) -> None:
    plain = training(**{"learning.record_gradient": False})
    simulate(plain, out=tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / "evaluations.parquet")
    assert table["gradient_norm2"].null_count == table["global_loss"].null_count == table.num_rows > 1
    hashes = [
        config_hash(load_config(overrides={"learning.dataset": "digits", "learning.average": how})) for how in ("none", "ema")
    ]
    assert hashes[0] == "929cbe75620f7ca6" != hashes[1], "an average gives other numbers"
    assert config_hash(plain) != config_hash(training())
