"""An aggregation rule that is not fedtwin's own, with a state that never comes back to its beginning."""

from typing import Any, NamedTuple

from fedtwin.learning.aggregation import Aggregator, Mixing, Upload


class Own(NamedTuple):
    """How much of the speed stays, and how large a step is."""

    momentum: float = 0.5
    step: float = 0.25


class Speed(NamedTuple):
    """The speed, and how many uploads it was made of."""

    speed: Any
    uploads: int = 0


def init(model: Any, settings: Mixing) -> Speed:  # noqa: ARG001
    return Speed(0.0 * model)


def apply(state: Speed, model: Any, upload: Upload, settings: Mixing) -> tuple[Speed, Any]:
    speed = settings.own.momentum * state.speed + (upload.weights - upload.start)
    return Speed(speed, state.uploads + 1), model + settings.own.step * speed


RULE = Aggregator(init, apply, settings=Own, needs_start=True)
