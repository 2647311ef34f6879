"""FedBuff: w ← w + ρ/K Σ s(t − τ_n) (w_n − w_n,start) when K uploads have come (Nguyen et al., 2022); K is ``buffer_size``."""

from typing import Any, NamedTuple

from fedtwin.learning.aggregation.base import STALENESS, Aggregator, Mixing, Upload
from fedtwin.learning.aggregation.staleness import staleness_weight


class Buffer(NamedTuple):
    """The sum of the changes that have come, and how many they are."""

    changes: Any = None
    held: int = 0


def init(model: Any, settings: Mixing) -> Buffer:  # noqa: ARG001
    return Buffer()


def apply(state: Buffer, model: Any, upload: Upload, settings: Mixing) -> tuple[Buffer, Any]:
    change = staleness_weight(settings, upload.staleness) * (upload.weights - upload.start)
    changes, held = change if state.changes is None else state.changes + change, state.held + 1
    if held < settings.buffer_size:
        return Buffer(changes, held), None
    return Buffer(), model + (settings.mixing / held) * changes


RULE = Aggregator(init, apply, needs_start=True, extrapolates=True, reads=("mixing", "buffer_size", *STALENESS))
