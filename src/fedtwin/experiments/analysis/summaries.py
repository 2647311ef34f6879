"""Summaries of runs as one table: a row each, typed columns, also where some runs lack a number."""

from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import pyarrow as pa

from fedtwin.records.summary import Summary

KINDS = {float: pa.float64(), float | None: pa.float64(), int: pa.int64(), int | None: pa.int64()}
COLUMNS = {name: KINDS[kind] for name, kind in get_type_hints(Summary).items()}
TO_ACCURACY = {"time_to_accuracy_s": "clock_s", "energy_to_accuracy_j": "energy_j"}
"""Columns of runs that were asked when they reach an accuracy, and the columns of their evaluations they come from."""
TYPES = {**COLUMNS, **dict.fromkeys(TO_ACCURACY, pa.float64())}


def summary_columns(rows: Sequence[Mapping[str, Any]], first: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Every name that a row has, as a column; those of ``first`` come first."""
    names = dict.fromkeys(name for row in [first or rows[0], *rows] for name in row)
    return {name: pa.array([row.get(name) for row in rows], type=TYPES.get(name)) for name in names}
