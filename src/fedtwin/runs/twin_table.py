"""A twin as an Arrow table, one row per device: the fields of ``device_to_dict``, those of a fact in columns of their own."""

import pyarrow as pa

from fedtwin.twin import Twin, device_to_dict

_FACT = pa.struct([("value", pa.float64()), ("learned_s", pa.float64()), ("source", pa.string())])
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("device", pa.int64()),
    ("samples", _FACT),
    ("status", pa.string()),
    ("gain", _FACT),
    ("cpu_hz", _FACT),
    ("compute_s", _FACT),
    ("selections", pa.int64()),
    ("declines", pa.int64()),
    ("observations", pa.int64()),
    ("cost_sum", pa.float64()),
    ("queue", pa.float64()),
    ("queue_round", pa.int64()),
    ("model_version", pa.int64()),
    ("counted", pa.bool_()),
    ("time_sum_s", pa.float64()),
    ("energy_sum_j", pa.float64()),
    ("gain_sum", pa.float64()),
    ("gains", pa.int64()),
    ("cpu_hz_sum", pa.float64()),
    ("cpus", pa.int64()),
    ("train_loss", _FACT),
    ("mean_cost", pa.float64()),
]
_TWIN = pa.schema(_COLUMNS)


def twin_table(twin: Twin) -> pa.Table:
    """Columns such as ``status``, ``gain.value`` and ``gain.learned_s``; ``queue`` is Q_n at ``queue_round``."""
    rows = [
        {"device": number, **device_to_dict(device), "mean_cost": device.mean_cost}
        for number, device in enumerate(twin.devices)
    ]
    return pa.Table.from_pylist(rows, schema=_TWIN).flatten()
