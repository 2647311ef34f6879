"""Window: w ← the mean of the last K uploaded models, of fewer before K have come (FedFa; Xu et al., 2024); K is ``size``."""

from typing import Annotated, Any, NamedTuple

from pydantic import Field

from fedtwin.learning.aggregation.base import Aggregator, Mixing, Upload, no_state


class Window(NamedTuple):
    """K, the uploads that the model is the mean of."""

    size: Annotated[int, Field(ge=1, le=10_000)] = 10


def apply(state: tuple[Any, ...], model: Any, upload: Upload, settings: Mixing) -> tuple[tuple[Any, ...], Any]:  # noqa: ARG001
    first, *others = last = (*state, upload.weights)[-settings.own.size :]
    return last, sum(others, first) / len(last)


RULE = Aggregator(no_state, apply, settings=Window, reads=())
