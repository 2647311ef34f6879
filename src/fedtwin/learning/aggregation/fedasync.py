"""FedAsync: every upload is mixed in at once, w ← (1 − ρ s) w + ρ s w_n with s = s(t − τ) (Section III-B; Xie et al., 2019)."""

from typing import Any

from fedtwin.learning.aggregation.base import STALENESS, Aggregator, Mixing, Upload, no_state
from fedtwin.learning.aggregation.blend import blend
from fedtwin.learning.aggregation.staleness import staleness_weight


def apply(state: Any, model: Any, upload: Upload, settings: Mixing) -> tuple[Any, Any]:
    weight = settings.mixing * staleness_weight(settings, upload.staleness)
    return state, blend(1.0 - weight, model, weight, upload.weights)


RULE = Aggregator(no_state, apply, reads=("mixing", *STALENESS))
