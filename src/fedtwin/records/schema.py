"""What a run writes down: one row per decision, enough to re-derive every one of them. docs/records.md explains each column.

The columns are listed once, as the fields of ``Row`` and of the other tuples; Arrow's types, and the records that the compiled
engine fills, follow from these.
"""

from collections.abc import Iterable
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

import pyarrow as pa

from fedtwin.learning.aggregation.refusals import Refusal
from fedtwin.learning.evaluation import Evaluation
from fedtwin.records.arrays import table_of_columns

SCHEMA_VERSION = 1


class Row(NamedTuple):
    """One decision. A decline costs nothing, so its times, energies and cost are None. The score is column ``index``.

    ``dropped`` is had where synchronous rounds have a timeout, ``train_loss`` where a model is trained, what follows it where
    the run is traced.
    """

    round: int
    clock_s: float
    arrived: int | None
    device: int
    gain: float
    cpu_hz: float
    samples: int
    power_w: float
    compute_s: float | None
    upload_s: float | None
    compute_j: float | None
    upload_j: float | None
    cost: float | None
    score: float
    queue: float
    total_queue: float
    staleness: int | None
    declined: bool
    time_ok: bool
    energy_ok: bool
    decline_reason: str | None
    known_gain: float | None
    known_gain_age_s: float | None
    dropped: bool = False
    train_loss: float | None = None
    available: list[bool] | None = None
    queues: list[float] | None = None
    scores: list[float] | None = None
    explained: str | None = None


class DeviceRow(NamedTuple):
    """One device of the fleet; a column ``name`` follows where its owner named the devices."""

    device: int
    distance_m: float
    path_gain: float
    cpu_hz_mean: float
    samples: int
    max_power_w: float
    cycles_per_sample: float
    update_bits: float
    max_time_s: float
    max_energy_j: float
    samples_spread: float
    tie_rank: int


class Column(NamedTuple):
    """One column: its name on disk, the field of the row it comes from, the kind of its values, and whether some are None."""

    name: str
    field: str
    kind: Any
    nullable: bool


ARROW: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    list[bool]: pa.list_(pa.bool_()),
    list[float]: pa.list_(pa.float64()),
}
_NAME_OF = {"score": "index", "scores": "indices"}


def columns_of(row: type[Any]) -> tuple[Column, ...]:
    """The columns that hold rows of a kind, in their order."""
    found = []
    for field, hint in get_type_hints(row).items():
        kinds = [kind for kind in get_args(hint) if kind is not NoneType] if NoneType in get_args(hint) else [hint]
        found.append(Column(_NAME_OF.get(field, field), field, kinds[0], NoneType in get_args(hint)))
    return tuple(found)


def _schema_of(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([(column.name, ARROW[column.kind]) for column in columns])


COLUMNS = columns_of(Row)
ROUND_COLUMNS = tuple(column for column in COLUMNS if column.field not in Row._field_defaults)
"""The columns of every run."""
TIMEOUT_COLUMNS = tuple(column for column in COLUMNS if column.field == "dropped")
LEARNING_COLUMNS = tuple(column for column in COLUMNS if column.field == "train_loss")
TRACE_COLUMNS = tuple(column for column in COLUMNS if column not in (*ROUND_COLUMNS, *TIMEOUT_COLUMNS, *LEARNING_COLUMNS))
EVALUATIONS = _schema_of(columns_of(Evaluation))
REFUSALS = _schema_of(columns_of(Refusal))
DEVICES = _schema_of(columns_of(DeviceRow))
_FIELD_OF = {column.name: column.field for column in COLUMNS}


def rounds_schema(*, trace: bool, learning: bool, timeout: bool = False) -> pa.Schema:
    """The columns of a run: ``dropped`` where synchronous rounds have a timeout, ``train_loss`` where a model is trained, lists
    over all devices where it is traced.
    """
    asked = ((TIMEOUT_COLUMNS, timeout), (LEARNING_COLUMNS, learning), (TRACE_COLUMNS, trace))
    return _schema_of((*ROUND_COLUMNS, *(column for columns, wanted in asked if wanted for column in columns)))


def to_table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table of the given columns."""
    columns = dict(zip(Row._fields, zip(*rows, strict=True), strict=True)) if rows else {}
    return table_of_columns([columns.get(_FIELD_OF[field.name], ()) for field in schema], schema)
