"""Columns made without pandas: the same arrays, and the same bytes on disk, as those of Arrow's own ``pa.array``."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.records.arrays import array_of, table_of, table_of_columns, words_of

WHOLE = st.integers(-(2**63), 2**63 - 1)
REAL = st.floats(allow_nan=False) | st.just(math.nan)
OF_A_KIND: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): WHOLE,
    pa.float64(): REAL,
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=5),
    pa.list_(pa.float64()): st.lists(REAL, max_size=3),
    pa.list_(pa.bool_()): st.lists(st.booleans(), max_size=3),
}
COLUMNS = st.sampled_from(list(OF_A_KIND)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.none() | OF_A_KIND[kind], max_size=20))
)


def bytes_of(array: "pa.Array[Any]", **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"column": array}), sink, **options)
    return sink.getvalue().to_pybytes()


@given(COLUMNS)
def test_a_list_becomes_the_array_and_the_bytes_of_pa_array(column: tuple[pa.DataType, list[Any]]) -> None:
    kind, values = column
    ours, arrows = array_of(values, kind), pa.array(values, type=kind)
    ours.validate(full=True)
    assert ours.type == arrows.type and ours.null_count == arrows.null_count
    assert bytes_of(ours) == bytes_of(arrows)
    assert bytes_of(ours, use_dictionary=False, compression="none") == bytes_of(
        arrows, use_dictionary=False, compression="none"
    )


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.bool_, np.int32])
@pytest.mark.parametrize("masked", [False, True])
def test_a_numpy_array_becomes_the_array_of_pa_array(dtype: Any, masked: bool) -> None:
    values = np.array([3, 0, 1, 7, 0, 2, 9, 1, 4], dtype)[::2]
    missing = np.array([True, False, False, True, False]) if masked else None
    kind = pa.bool_() if dtype is np.bool_ else pa.float64() if dtype is np.float64 else pa.int64()
    ours, arrows = array_of(values, kind, missing), pa.array(values, type=kind, mask=missing)
    assert ours.equals(arrows) and bytes_of(ours) == bytes_of(arrows)


def test_texts_may_be_left_out_by_a_mask() -> None:
    missing = np.array([False, True])
    assert array_of(["a", "b"], pa.string(), missing).to_pylist() == ["a", None]


@pytest.mark.parametrize("missing", [[False, True, False], [True] * 3, [False] * 3])
def test_a_few_words_by_number_are_the_array_of_pa_array(missing: list[bool]) -> None:
    words = ["", "time", "energy"]
    ours = words_of(np.array([2, 0, 1], np.int8), words, np.array(missing))
    arrows = pa.array([None if gone else words[k] for k, gone in zip((2, 0, 1), missing, strict=True)], type=pa.string())
    ours.validate(full=True)
    assert ours.equals(arrows) and bytes_of(ours) == bytes_of(arrows)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.5], pa.int64()),
        (["1"], pa.float64()),
        ([1], pa.bool_()),
        ([True], pa.int64()),
        ([2**63], pa.int64()),
        ([1.5, None], pa.int64()),
        ([object()], pa.float64()),
        ([2**53 + 1], pa.float64()),
    ],
)
def test_what_is_of_another_kind_is_refused_and_not_cast(values: list[Any], kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="cannot hold"):
        array_of(values, kind)


def test_a_kind_that_no_record_has_is_refused() -> None:
    with pytest.raises(TypeError, match="no column of date32"):
        array_of([], pa.date32())


def test_tables_by_columns_and_by_rows(tmp_path: Path) -> None:
    columns: list[tuple[str, pa.DataType]] = [("a", pa.int64()), ("b", pa.string())]
    schema = pa.schema(columns)
    rows = [(1, "x"), (2, None)]
    by_rows, by_columns = table_of(rows, schema), table_of_columns([np.array([1, 2]), ["x", None]], schema)
    assert by_rows.equals(by_columns) and by_rows.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert table_of([], schema).num_rows == 0 and table_of([], schema).schema == schema
    pq.write_table(by_rows, tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").equals(by_rows)
