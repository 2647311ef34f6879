"""FedAvg: at the end of a synchronous round w ← Σ D_n w_n / Σ D_n (McMahan et al., 2017)."""

from typing import Any, NamedTuple

from fedtwin.learning.aggregation.base import Aggregator, Mixing, Upload


class Sums(NamedTuple):
    """Σ D_n w_n and Σ D_n of the round so far."""

    weights: Any = None
    samples: float = 0.0


def init(model: Any, settings: Mixing) -> Sums:  # noqa: ARG001
    return Sums()


def apply(state: Sums, model: Any, upload: Upload, settings: Mixing) -> tuple[Sums, None]:  # noqa: ARG001
    weighted = upload.samples * upload.weights
    return Sums(weighted if state.weights is None else state.weights + weighted, state.samples + upload.samples), None


def close_round(state: Sums, model: Any, settings: Mixing) -> tuple[Sums, Any]:  # noqa: ARG001
    return Sums(), None if state.weights is None else state.weights / state.samples


RULE = Aggregator(init, apply, close_round, modes=("sync",), reads=())
