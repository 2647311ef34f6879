"""The rows of the compiled engine as an Arrow table or as rows: the same columns, types and nulls as the readable one's."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedtwin.formulas.power import REASONS
from fedtwin.records import Row, rounds_schema
from fedtwin.records.arrays import array_of
from fedtwin.records.schema import ARROW, ROUND_COLUMNS, Column
from fedtwin.sim.fast.layout import Records

SCHEMA = rounds_schema(trace=False, learning=False)
_REASONS = np.array(REASONS, object)


def to_arrow(rows: Records) -> pa.Table:
    """A copy; the places of the rows may be filled again."""
    arrays = [array_of(_values(rows, column), ARROW[column.kind], _missing(rows, column)) for column in ROUND_COLUMNS]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def to_rows(rows: Records) -> Iterator[Row]:
    """The same as ``Row``s."""
    columns = []
    for column in ROUND_COLUMNS:
        values, missing = _values(rows, column).tolist(), _missing(rows, column)
        if missing is not None:
            for place in np.flatnonzero(missing).tolist():
                values[place] = None
        columns.append(values)
    return (Row(*values) for values in zip(*columns, strict=True))


def _values(rows: Records, column: Column) -> NDArray[np.generic]:
    return _REASONS[rows["reason"]] if column.kind is str else np.array(rows[column.field])


def _missing(rows: Records, column: Column) -> NDArray[np.bool_] | None:
    """Only a decline has a reason, and it has no time, energy and cost; a whole number is below zero where there is none."""
    if not column.nullable:
        return None
    declined: NDArray[np.bool_] = rows["declined"]
    return ~declined if column.kind is str else declined if column.kind is float else rows[column.field] < 0
