"""Change: w ← w + ρ s(t − τ) (w_n − w_n,start) with every upload, which is FedBuff with K = 1 (Nguyen et al., 2022).

FedAsync draws the model towards w_n, and so back to where the device started; this leaves standing what came meanwhile.
"""

from typing import Any

from fedtwin.learning.aggregation.base import STALENESS, Aggregator, Mixing, Upload, no_state
from fedtwin.learning.aggregation.staleness import staleness_weight


def apply(state: Any, model: Any, upload: Upload, settings: Mixing) -> tuple[Any, Any]:
    weight = settings.mixing * staleness_weight(settings, upload.staleness)
    return state, model + weight * (upload.weights - upload.start)


RULE = Aggregator(no_state, apply, needs_start=True, extrapolates=True, reads=("mixing", *STALENESS))
