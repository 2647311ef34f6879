"""FedAvgM: at the end of a synchronous round v ← β v + (Σ D_n w_n / Σ D_n − w), w ← w + η v (Hsu et al., 2019).

The paper writes v with the other sign, and η = 1; another is the server's rate of FedOpt (Reddi et al., 2021).
"""

from typing import Annotated, Any, NamedTuple

from pydantic import Field

from fedtwin.learning.aggregation import fedavg
from fedtwin.learning.aggregation.base import Aggregator, Mixing, Upload
from fedtwin.learning.aggregation.fedavg import Sums


class Momentum(NamedTuple):
    """β and η."""

    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    rate: Annotated[float, Field(gt=0.0)] = 1.0


class Speed(NamedTuple):
    """v, and the round so far."""

    speed: Any
    round: Sums


def init(model: Any, settings: Mixing) -> Speed:  # noqa: ARG001
    return Speed(0.0 * model, Sums())


def apply(state: Speed, model: Any, upload: Upload, settings: Mixing) -> tuple[Speed, None]:
    return state._replace(round=fedavg.apply(state.round, model, upload, settings)[0]), None


def close_round(state: Speed, model: Any, settings: Mixing) -> tuple[Speed, Any]:
    """A round that nothing came of is none: the model does not roll on."""
    sums, mean = fedavg.close_round(state.round, model, settings)
    if mean is None:
        return state, None
    speed = settings.own.momentum * state.speed + (mean - model)
    return Speed(speed, sums), model + settings.own.rate * speed


RULE = Aggregator(init, apply, close_round, settings=Momentum, modes=("sync",), extrapolates=True, reads=())
