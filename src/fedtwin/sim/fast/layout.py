"""The state of a run as arrays: one record per device, one per upload on its way, one for the run, columns for the rows."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.formulas.terms import Terms
from fedtwin.policies.base import Knobs

Records = Any  # arrays of the records below; field access is what NumPy's types cannot say
Leaves = NDArray[np.int32]
NOBODY = -1
NEVER = 2**62

DEVICE = np.dtype(
    [
        ("path_gain", np.float64),
        ("cpu_hz_mean", np.float64),
        ("stream", np.uint64),
        ("samples", np.float64),
        ("gain", np.float64),
        ("compute_s", np.float64),
        ("cost_sum", np.float64),
        ("queue", np.float64),
        ("queue_round", np.int64),
        ("selections", np.int64),
        ("observations", np.int64),
        ("rank", np.int32),
        ("next_decliner", np.int32),
        ("leaf", np.int32),
        ("free", np.bool_),
    ],
    align=True,
)

FLIGHT = np.dtype(
    [
        ("at_s", np.float64),
        ("device", np.int64),
        ("cost", np.float64),
        ("version", np.int64),
        ("counted", np.bool_),
    ],
    align=True,
)

ANSWER = np.dtype(
    [
        ("device", np.int64),
        ("gain", np.float64),
        ("cpu_hz", np.float64),
        ("score", np.float64),
        ("queue", np.float64),
        ("total_queue", np.float64),
        ("power_w", np.float64),
        ("compute_s", np.float64),
        ("upload_s", np.float64),
        ("compute_j", np.float64),
        ("upload_j", np.float64),
        ("reason", np.int64),
        ("feasible", np.bool_),
    ],
    align=True,
)

RUN = np.dtype(
    [
        ("clock_s", np.float64),
        ("round", np.int64),
        ("version", np.int64),
        ("flights", np.int64),
        ("answers", np.int64),
        ("accepted", np.int64),
        ("emitted", np.int64),
        ("dispatched", np.int64),
        ("first_decliner", np.int64),
        ("queue_sum", np.float64),
        ("queue_round_sum", np.int64),
        ("arrived", np.int64),
        ("staleness", np.int64),
        ("slowest_s", np.float64),
        ("rows", np.int64),
        ("sampled", np.int64),
        ("cost_sum", np.float64),
        ("time_sum_s", np.float64),
        ("energy_sum_j", np.float64),
        ("selections", np.int64),
        ("declines", np.int64),
        ("staleness_sum", np.int64),
        ("arrivals", np.int64),
        ("rounds_with_a_selection", np.int64),
        ("time_violations", np.int64),
        ("energy_violations", np.int64),
        ("arrival_round", np.int64),
        ("selection_round", np.int64),
        ("asking", np.bool_),
        ("waiting", np.bool_),
        ("closing", np.bool_),
        ("scanning", np.bool_),
        ("look_again_at", np.int64),
        ("work_before", np.int64),
        ("rounds_of_scans", np.int64),
    ],
    align=True,
)


ROW = np.dtype(
    [
        *(
            (name, np.float64)
            for name in ("clock_s", "gain", "cpu_hz", "power_w", "compute_s", "upload_s", "compute_j", "upload_j")
        ),
        *((name, np.float64) for name in ("cost", "score", "queue", "total_queue")),
        *((name, np.int64) for name in ("round", "arrived", "device", "samples", "staleness")),
        *((name, np.bool_) for name in ("declined", "time_ok", "energy_ok")),
        ("reason", np.int8),
    ],
    align=True,
)
"""One row of the records; −1 stands for null in ``arrived`` and ``staleness``."""

NODE = np.dtype([("until", np.int64), ("best", np.int32)], align=True)
"""An inner node of the tournament: the best below it, and the round until which that is certain. Node 0 counts the work."""

POINT = np.dtype([("round", np.int64), ("mean_cost", np.float64), ("total_queue", np.float64)], align=True)
"""A round at which the series is sampled, and what was found there."""


class Rules(NamedTuple):
    """What does not change in a run."""

    terms: Terms
    knobs: Knobs
    devices: int
    channels: int
    rounds: int
    std_hz: float
    floor_hz: float
    learn_on_selection: bool
    indexed: bool


class State(NamedTuple):
    """All that changes in a run: one RUN, then arrays of DEVICE, FLIGHT, ANSWER, NODE, device numbers, POINT and ROW.

    ``order`` holds the devices as the tournament's leaves; where there is none, it and ``nodes`` are empty. So are ``rows``
    where none are kept.
    """

    run: Records
    devices: Records
    flights: Records
    answers: Records
    nodes: Records
    order: Leaves
    curve: Records
    rows: Records
