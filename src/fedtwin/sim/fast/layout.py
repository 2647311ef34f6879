"""The state of a run as arrays: one record per device, one per upload on its way, one for the run, columns for the rows."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.formulas.terms import Quantities, Terms
from fedtwin.policies.base import Knobs
from fedtwin.records.arrays import DTYPES
from fedtwin.records.schema import ARROW, ROUND_COLUMNS, TIMEOUT_COLUMNS
from fedtwin.records.summary import Tally
from fedtwin.sim.series import Point

Records = Any  # arrays of the records below; field access is what NumPy's types cannot say
Leaves = NDArray[np.int32]
NOBODY = -1
NEVER = 2**62

DEVICE = np.dtype(
    [
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

HEARD = np.dtype(
    [
        ("gain_at_s", np.float64),
        ("gain_sum", np.float64),
        ("gains", np.int64),
        ("cpu_hz_sum", np.float64),
        ("compute_at_s", np.float64),
        ("version", np.int64),
        ("task_s", np.float64),
        ("task_j", np.float64),
        ("trained", np.float64),
    ],
    align=True,
)
"""What few policies look at of a device: when its facts were heard of, the model it holds, what its task takes.

``trained`` is kept up always: the samples of all its selections but those whose upload was dropped.
"""

PLACE = np.dtype(
    [
        ("path_gain", np.float64),
        ("cpu_hz_mean", np.float64),
        ("channel_stream", np.uint64),
        ("load_stream", np.uint64),
        ("availability_stream", np.uint64),
    ],
    align=True,
)
"""What only the world knows of a device."""

OWN = np.dtype([(name, np.float64) for name in Quantities._fields], align=True)
"""The terms that are a device's own."""

SENSOR = np.dtype([("mean", np.int64), ("spread", np.float64), ("stream", np.uint64)], align=True)
"""What the world knows of a device's samples."""

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
        ("samples", np.float64),
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
        ("available", np.bool_),
        ("known_gain", np.float64),
        ("known_gain_age_s", np.float64),
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
        *((sum_.name, DTYPES[ARROW[sum_.type]]) for sum_ in dataclasses.fields(Tally)),
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


def _fields(kind: type) -> list[tuple[str, Any]]:
    return [(column.field, DTYPES[ARROW[kind]]) for column in (*ROUND_COLUMNS, *TIMEOUT_COLUMNS) if column.kind is kind]


ROW = np.dtype([*_fields(float), *_fields(int), *_fields(bool), ("reason", np.int8)], align=True)
"""One row of the records, its reason as a number; −1 stands for None in a whole number."""

NODE = np.dtype([("until", np.int64), ("best", np.int32)], align=True)
"""An inner node of the tournament: the best below it, and the round until which that is certain. Node 0 counts the work."""

POINT = np.dtype([(part.name, DTYPES[ARROW[part.type]]) for part in dataclasses.fields(Point)], align=True)
"""A point of the series."""


class Rules(NamedTuple):
    """What does not change in a run. ``noted``: HEARD is kept up, for a policy that looks at it or for the rows.

    ``timeout_s``: of a synchronous round, infinite where it waits for all.
    ``own``: devices have terms of their own; ``senses``: D_n(t) is asked for, because it may differ from D_n.
    """

    terms: Terms
    knobs: Knobs
    devices: int
    channels: int
    rounds: int
    std_hz: float
    floor_hz: float
    channel_settings: Any
    load_settings: Any
    availability_settings: Any
    sensing_settings: Any
    learn_on_selection: bool
    indexed: bool
    noted: bool
    own: bool
    senses: bool
    timeout_s: float


class Fleet(NamedTuple):
    """One entry per device in each: DEVICE, HEARD, PLACE, the policy's own state of it, OWN and SENSOR.

    The last two are empty where nobody has terms of its own, and where D_n(t) is D_n.
    """

    devices: Records
    heard: Records
    places: Records
    own: NDArray[np.float64]
    terms: Records
    sensors: Records


class State(NamedTuple):
    """All that changes in a run: one RUN, the fleet, then arrays of FLIGHT, ANSWER, NODE, device numbers, POINT and ROW.

    ``order`` holds the devices as the tournament's leaves; where there is none, it and ``nodes`` are empty. So are ``rows``
    where none are kept.
    """

    run: Records
    fleet: Fleet
    flights: Records
    answers: Records
    nodes: Records
    order: Leaves
    curve: Records
    rows: Records

    @property
    def devices(self) -> Records:
        return self.fleet.devices
