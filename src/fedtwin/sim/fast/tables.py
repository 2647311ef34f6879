"""The rows of the compiled engine as an Arrow table: the same columns, types and nulls as the readable one's."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedtwin.formulas.power import REASONS
from fedtwin.records import rounds_schema
from fedtwin.sim.fast.layout import Records

SCHEMA = rounds_schema(trace=False, learning=False)
SPENT = ("compute_s", "upload_s", "compute_j", "upload_j", "cost")
OPENED = ("arrived", "staleness")
_FIELD_OF = {"index": "score"}


def to_arrow(rows: Records) -> pa.Table:
    """Times, energies and costs of a decline are null, and so is who arrived where nobody did."""
    declined = rows["declined"]
    arrays = []
    for field in SCHEMA:
        if field.name == "decline_reason":
            arrays.append(_reasons(rows["reason"], declined))
            continue
        values = np.ascontiguousarray(rows[_FIELD_OF.get(field.name, field.name)])
        mask = declined if field.name in SPENT else values < 0 if field.name in OPENED else None
        arrays.append(pa.array(values, type=field.type, mask=mask if mask is not None and mask.any() else None))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _reasons(reason: NDArray[np.int8], declined: NDArray[np.bool_]) -> "pa.Array[Any]":
    if not declined.any():
        return pa.nulls(len(reason), pa.string())
    return pa.array(np.array(REASONS, object)[reason], type=pa.string(), mask=~declined)
