"""CA2FL: w ← w + ρ v when K uploads have come, v = h + 1/K Σ (Δ_n − h_n) with Δ_n = w_n − w_n,start; then h_n ← Δ_n (Wang et
al., ICLR 2024, Algorithm 2). h_n is the last change of device n before these K, h = 1/N Σ h_n; K is ``buffer_size``.

N is the number of devices heard before, or ``devices``, if that is more. The paper has h_n = 0 of a device not heard yet, which
is what it counts for in h; one that h does not count has h_n = h: nobody's first change comes on top of all the others'.

The cache is a vector of every device. Once there are more than ``int8_beyond`` of them, who uploads is kept in eight bits (the
paper's MF-CA2FL). The sum of the cache is kept along with it, so that an upload costs O(model).
"""

from typing import Annotated, Any, NamedTuple

from pydantic import Field

from fedtwin.learning.aggregation.base import Aggregator, Mixing, Upload
from fedtwin.learning.aggregation.device_cache import EightBits, Total, in_eight_bits, vector_of

__all__ = ["RULE", "Cached", "Calibration", "EightBits"]  # the state's classes are found by their names here


class Calibration(NamedTuple):
    """N at least, and how many devices are kept in float32."""

    devices: Annotated[int, Field(ge=0)] = 0
    int8_beyond: Annotated[int, Field(ge=0)] = 300


class Cached(NamedTuple):
    """h_n of every device and their sum; of the uploads since the last step Σ (Δ_n − h_n), Δ_n by device, and their number."""

    last: dict[int, Any]
    total: Total
    calibrated: Any
    changes: dict[int, Any]
    held: int = 0


def init(model: Any, settings: Mixing) -> Cached:  # noqa: ARG001
    return Cached({}, Total(0.0 * model, 0.0 * model), 0.0 * model, {})


def apply(state: Cached, model: Any, upload: Upload, settings: Mixing) -> tuple[Cached, Any]:
    heard, devices = len(state.last), settings.own.devices
    mean = (state.total.rounded + state.total.lost) / max(heard, devices, 1)
    unheard = 0.0 if heard < devices else mean
    last = vector_of(state.last[upload.device]) if upload.device in state.last else unheard
    change = upload.weights - upload.start
    calibrated, held = state.calibrated + (change - last), state.held + 1
    changes = {**state.changes, upload.device: change}
    if held < settings.buffer_size:
        return Cached(state.last, state.total, calibrated, changes, held), None
    last, total = remembered(state.last, state.total, changes, settings.own.int8_beyond)
    return Cached(last, total, 0.0 * calibrated, {}), model + settings.mixing * (mean + calibrated / held)


def remembered(last: dict[int, Any], total: Total, changes: dict[int, Any], int8_beyond: int) -> tuple[dict[int, Any], Total]:
    """h_n ← Δ_n, and the sum of all h_n."""
    last = dict(last)
    for device, change in changes.items():
        if device in last:
            total = total.plus(-vector_of(last[device]))
        last[device] = change
        if len(last) > int8_beyond:
            last[device] = in_eight_bits(change)
        total = total.plus(vector_of(last[device]))
    return last, total


RULE = Aggregator(init, apply, settings=Calibration, needs_start=True, extrapolates=True, reads=("mixing", "buffer_size"))
