"""What a run writes down: one row per decision, enough to re-derive every one of them. docs/records.md explains each column."""

from typing import NamedTuple

import pyarrow as pa

SCHEMA_VERSION = 1


class Row(NamedTuple):
    """One decision. A decline costs nothing, so its times, energies and cost are null. The score is column ``index``."""

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
    train_loss: float | None = None
    available: list[bool] | None = None
    queues: list[float] | None = None
    scores: list[float] | None = None


_ROUND_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("round", pa.int64()),
    ("clock_s", pa.float64()),
    ("arrived", pa.int64()),
    ("device", pa.int64()),
    ("gain", pa.float64()),
    ("cpu_hz", pa.float64()),
    ("samples", pa.int64()),
    ("power_w", pa.float64()),
    ("compute_s", pa.float64()),
    ("upload_s", pa.float64()),
    ("compute_j", pa.float64()),
    ("upload_j", pa.float64()),
    ("cost", pa.float64()),
    ("index", pa.float64()),
    ("queue", pa.float64()),
    ("total_queue", pa.float64()),
    ("staleness", pa.int64()),
    ("declined", pa.bool_()),
    ("time_ok", pa.bool_()),
    ("energy_ok", pa.bool_()),
    ("decline_reason", pa.string()),
]
_TRACE_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("available", pa.list_(pa.bool_())),
    ("queues", pa.list_(pa.float64())),
    ("indices", pa.list_(pa.float64())),
]
_LEARNING_COLUMNS: list[tuple[str, pa.DataType]] = [("train_loss", pa.float64())]
_EVALUATION_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("round", pa.int64()),
    ("clock_s", pa.float64()),
    ("energy_j", pa.float64()),
    ("test_loss", pa.float64()),
    ("test_accuracy", pa.float64()),
]
_REFUSAL_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("round", pa.int64()),
    ("clock_s", pa.float64()),
    ("device", pa.int64()),
    ("reason", pa.string()),
]
REFUSALS = pa.schema(_REFUSAL_COLUMNS)
EVALUATIONS = pa.schema(_EVALUATION_COLUMNS)
_FIELD_OF = {"index": "score", "indices": "scores"}

_DEVICE_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("device", pa.int64()),
    ("distance_m", pa.float64()),
    ("path_gain", pa.float64()),
    ("cpu_hz_mean", pa.float64()),
    ("samples", pa.int64()),
    ("tie_rank", pa.int64()),
]
DEVICES = pa.schema(_DEVICE_COLUMNS)


def rounds_schema(*, trace: bool, learning: bool) -> pa.Schema:
    """The columns of a run: ``train_loss`` where a model is trained, lists over all devices where it is traced."""
    return pa.schema(_ROUND_COLUMNS + (_LEARNING_COLUMNS if learning else []) + (_TRACE_COLUMNS if trace else []))


def to_table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table of the given columns."""
    columns = dict(zip(Row._fields, zip(*rows, strict=True), strict=True)) if rows else {}
    arrays = [pa.array(columns.get(_FIELD_OF.get(field.name, field.name), ()), type=field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)
