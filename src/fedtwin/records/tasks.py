"""The tasks of a live run: one row each, what was predicted beside what was measured. docs/live.md explains each column."""

import pyarrow as pa

TASKS_NAME = "tasks.parquet"
_TASK_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("round", pa.int64()),
    ("device", pa.int64()),
    ("name", pa.string()),
    ("dispatched_s", pa.float64()),
    ("ended_s", pa.float64()),
    ("outcome", pa.string()),
    ("version", pa.int64()),
    ("staleness", pa.int64()),
    ("twin_s", pa.float64()),
    ("predicted_s", pa.float64()),
    ("actual_s", pa.float64()),
    ("elapsed_s", pa.float64()),
    ("link_s", pa.float64()),
    ("twin_j", pa.float64()),
    ("predicted_j", pa.float64()),
    ("actual_j", pa.float64()),
    ("twin_cost", pa.float64()),
    ("predicted_cost", pa.float64()),
    ("actual_cost", pa.float64()),
    ("clock_cost", pa.float64()),
    ("believed", pa.bool_()),
    ("time_source", pa.string()),
    ("energy_source", pa.string()),
    ("uploaded_bytes", pa.int64()),
]
TASKS = pa.schema(_TASK_COLUMNS)
