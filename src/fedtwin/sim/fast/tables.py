"""The rows of the compiled engine as an Arrow table or as rows: the same columns, types and nulls as the readable one's."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedtwin.formulas.power import REASONS
from fedtwin.records import Row, rounds_schema
from fedtwin.records.arrays import array_of, words_of
from fedtwin.records.schema import ARROW, ROUND_COLUMNS, TIMEOUT_COLUMNS, Column
from fedtwin.sim.fast.layout import Records

OF_THE_TWIN = ("known_gain", "known_gain_age_s")


def to_arrow(rows: Records, *, timeout: bool = False) -> pa.Table:
    """A copy; the places of the rows may be filled again. ``timeout``: synchronous rounds have one."""
    schema = rounds_schema(trace=False, learning=False, timeout=timeout)
    arrays = []
    for column, values, missing in _columns(rows):
        if column in TIMEOUT_COLUMNS and not timeout:
            continue
        if column.kind is str and missing is not None:
            arrays.append(words_of(values, REASONS, missing))
        else:
            arrays.append(array_of(values, ARROW[column.kind], missing))
    return pa.Table.from_arrays(arrays, schema=schema)


def to_rows(rows: Records) -> Iterator[Row]:
    """The same as ``Row``s."""
    columns = []
    for column, found, missing in _columns(rows):
        values = found.tolist() if column.kind is not str else [REASONS[reason] for reason in found.tolist()]
        for place in np.flatnonzero(missing).tolist() if missing is not None else ():
            values[place] = None
        columns.append(values)
    return (Row(*values) for values in zip(*columns, strict=True))


def _columns(rows: Records) -> Iterator[tuple[Column, NDArray[Any], NDArray[np.bool_] | None]]:
    """Columns with their values, of texts by number, and which of them are None.

    Only a decline has a reason, and it has no time, energy and cost; a whole number is below zero where there is none, and what
    the twin does not know is NaN.
    """
    declined = np.array(rows["declined"])
    for column in (*ROUND_COLUMNS, *TIMEOUT_COLUMNS):
        values = np.array(rows["reason" if column.kind is str else column.field])
        if column.kind is str:
            yield column, values, ~declined
        elif not column.nullable:
            yield column, values, None
        elif column.field in OF_THE_TWIN:
            yield column, values, np.isnan(values)
        else:
            yield column, values, declined if column.kind is float else values < 0
