"""How uploads become the next model. NumPy only: an edge server aggregates without PyTorch.

Floating-point entries (parameters, running means and variances of BatchNorm) are mixed; integer counters are never averaged,
the larger is kept. The vectors may be of any array type with the usual operators; none is changed in place, so that a model
version stays what it was for the devices that have downloaded it.
"""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedtwin.config import LearningConfig
from fedtwin.learning.layout import Counters, Weights
from fedtwin.learning.staleness import staleness_weight


class Aggregator(Protocol):
    """``add`` takes one upload with the model it started from, and answers the next global model (or the same one)."""

    def add(self, model: Any, start: Any, upload: Any, staleness: int, samples: float) -> Any: ...

    def close_round(self, model: Any) -> Any:
        """A synchronous round has ended."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold besides the model."""

    def restore(self, state: dict[str, Any]) -> None: ...


class FedAsync:
    """Every upload is mixed in at once with weight ρ s(t − τ): w ← (1 − ρ) w + ρ w_n, Section III-B."""

    def __init__(self, config: LearningConfig) -> None:
        self._config = config

    def add(self, model: Any, start: Any, upload: Any, staleness: int, samples: float) -> Any:  # noqa: ARG002
        weight = self._config.mixing * staleness_weight(self._config, staleness)
        return (1.0 - weight) * model + weight * upload

    def close_round(self, model: Any) -> Any:
        return model

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


class FedAvg:
    """The mean of a synchronous round, weighted by samples (McMahan et al., 2017)."""

    def __init__(self) -> None:
        self._sum: Any = None
        self._samples = 0.0

    def add(self, model: Any, start: Any, upload: Any, staleness: int, samples: float) -> Any:  # noqa: ARG002
        self._sum = samples * upload if self._sum is None else self._sum + samples * upload
        self._samples += samples
        return model

    def close_round(self, model: Any) -> Any:
        if self._sum is None:
            return model
        mean = self._sum / self._samples
        self._sum, self._samples = None, 0.0
        return mean

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


class FedBuff:
    """Changes are gathered, each weighted by its staleness, and applied together when K have come (Nguyen et al., 2022)."""

    def __init__(self, config: LearningConfig) -> None:
        self._config = config
        self._buffer: Any = None
        self._held = 0

    def add(self, model: Any, start: Any, upload: Any, staleness: int, samples: float) -> Any:  # noqa: ARG002
        change = staleness_weight(self._config, staleness) * (upload - start)
        self._buffer = change if self._buffer is None else self._buffer + change
        self._held += 1
        if self._held < self._config.buffer_size:
            return model
        model = model + (self._config.mixing / self._held) * self._buffer
        self._buffer, self._held = None, 0
        return model

    def close_round(self, model: Any) -> Any:
        return model

    def state(self) -> dict[str, Any]:
        return {} if self._buffer is None else {"buffer": self._buffer, "held": np.array([self._held], np.int64)}

    def restore(self, state: dict[str, Any]) -> None:
        if "buffer" in state:
            self._buffer, self._held = state["buffer"], int(state["held"][0])


def make_aggregator(config: LearningConfig, mode: str) -> Aggregator:
    """The configured aggregation; ``scheme``: FedAvg for synchronous rounds, FedAsync otherwise."""
    name = config.aggregation
    if name == "scheme":
        name = "fedavg" if mode == "sync" else "fedasync"
    if name == "fedavg":
        return FedAvg()
    return FedBuff(config) if name == "fedbuff" else FedAsync(config)


class Refusal(NamedTuple):
    """One row of ``refusals.parquet``: an upload that was not mixed in."""

    round: int
    clock_s: float
    device: int
    reason: str


def refusal(model: Weights, upload: Weights, *, finite: bool | None = None, train_loss: float = 0.0) -> str | None:
    """Why an upload must not be mixed in: wrong shape, or something that is not finite.

    Whoever knows already whether all values are finite says so; the vectors may then be of any array type.
    """
    if upload.floats.shape != model.floats.shape or upload.counters.shape != model.counters.shape:
        values, counters = math.prod(upload.floats.shape), math.prod(upload.counters.shape)
        return f"wrong shape: {values} values and {counters} counters"
    if not (np.isfinite(upload.floats).all() if finite is None else finite):
        return "values that are not finite"
    return None if math.isfinite(train_loss) else "a training loss that is not finite"


def newest_counters(model: Counters, upload: Counters) -> Counters:
    """Counters are not averaged into nonsense: the larger is kept."""
    return np.maximum(model, upload)
