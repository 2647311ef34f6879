"""Arrow columns out of NumPy arrays and lists, without pandas, which ``pa.array`` imports wherever it is installed."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Values = Sequence[Any] | NDArray[Any]
Missing = NDArray[np.bool_]
DTYPES: dict[pa.DataType, Any] = {pa.int64(): np.int64, pa.float64(): np.float64, pa.bool_(): np.bool_}


def array_of(values: Values, kind: pa.DataType, missing: Missing | None = None) -> "pa.Array[Any]":
    """The same array as ``pa.array(values, type=kind, mask=missing)``: numbers, truths, texts and lists of them.

    What is None, or ``missing``, is null. A value of another kind than the column's is a ``TypeError``, never a lossy cast.
    """
    if kind in DTYPES:
        return _numbers(values, kind, missing)
    if pa.types.is_list(kind):
        return _lists(list(values), kind)
    if kind == pa.string():
        return _texts(values, missing)
    raise TypeError(f"no column of {kind} is known")


def words_of(numbers: NDArray[Any], words: Sequence[str], missing: Missing) -> "pa.Array[Any]":
    """Texts out of a few words, by their numbers."""
    if missing.all():
        return pa.nulls(len(numbers), pa.string())
    places = _array(pa.int64(), len(numbers), missing, numbers.astype(np.int64))
    return pa.DictionaryArray.from_arrays(places, array_of(words, pa.string())).dictionary_decode()


def table_of_columns(columns: Sequence[Values], schema: pa.Schema) -> pa.Table:
    """A table of columns in the order of the schema."""
    arrays = [array_of(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def table_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """A table of rows whose items are in the order of the schema."""
    return table_of_columns(list(zip(*rows, strict=True)) or [()] * len(schema), schema)


def _numbers(values: Values, kind: pa.DataType, missing: Missing | None) -> "pa.Array[Any]":
    dtype = np.dtype(DTYPES[kind])
    found = np.asarray(values) if len(values) else np.zeros(0, dtype)
    if found.dtype == object:
        missing = _nones(values)
        zero = dtype.type(0).item()
        found = np.asarray([zero if value is None else value for value in values])
    if found.ndim != 1 or not _fits(found, dtype):
        raise TypeError(f"a column of {kind} cannot hold values of {found.dtype}")
    found = np.ascontiguousarray(found, dtype)
    data = np.packbits(found, bitorder="little") if dtype == np.bool_ else found
    return _array(kind, len(found), missing, data)


def _fits(found: NDArray[Any], wanted: np.dtype[Any]) -> bool:
    """Without a loss: whole numbers in a column of real ones up to 2⁵³."""
    if found.dtype == wanted:
        return True
    if found.dtype.kind not in "iuf" or not np.can_cast(found.dtype, wanted, "safe"):
        return False
    return found.dtype.kind == "f" or wanted.kind != "f" or bool((np.abs(found) <= 2**53).all())


def _texts(values: Values, missing: Missing | None) -> "pa.Array[Any]":
    missing = _nones(values) if missing is None else missing
    written = [b"" if gone or value is None else value.encode() for value, gone in zip(values, missing.tolist(), strict=True)]
    return _array(pa.string(), len(values), missing, _offsets(written), np.frombuffer(b"".join(written), np.uint8))


def _lists(values: list[Sequence[Any] | None], kind: Any) -> "pa.Array[Any]":
    held = [() if value is None else value for value in values]
    items = array_of(list(chain.from_iterable(held)), kind.value_type)
    return _array(kind, len(values), _nones(values), _offsets(held), children=[items])


def _nones(values: Values) -> Missing:
    return np.fromiter((value is None for value in values), np.bool_, len(values))


def _offsets(parts: Sequence[Sequence[Any]]) -> NDArray[np.int32]:
    ends = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        raise TypeError("a column of texts or lists is longer than Arrow can number")
    return ends.astype(np.int32)


def _array(
    kind: pa.DataType, length: int, missing: Missing | None, *data: NDArray[Any], children: Any = None
) -> "pa.Array[Any]":
    nulls = 0 if missing is None else int(np.count_nonzero(missing))
    validity = _buffer(np.packbits(~missing, bitorder="little")) if missing is not None and nulls else None
    buffers = [validity, *map(_buffer, data)]
    return pa.Array.from_buffers(kind, length, buffers, nulls, children=children)


def _buffer(data: Any) -> pa.Buffer:
    contiguous: Any = np.ascontiguousarray(data)  # NumPy's stubs know of buffers from Python 3.12 on only
    return pa.py_buffer(contiguous)
