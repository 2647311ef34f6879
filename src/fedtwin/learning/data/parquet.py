"""Samples in Parquet, one row each. Columns of numbers are the features of a row, columns of lists the channels of a window.

``target``, or ``target_…`` where there are several, is what is learned; ``client``, if it is there, says whose a sample is.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError

TARGET, CLIENT, FEATURES = "target", "client", "features"


def arrays_of_parquet(setting: str, path: Path, part: str, *, needs_targets: bool = True) -> dict[str, NDArray[Any]]:
    """``x_train`` and ``y_train``, or those of the test set; the second only if it is there, where no targets are needed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise FedtwinError(f"{setting}: Parquet needs pyarrow: pip install 'fedtwin[sim]', or give a .npz.") from None
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, ValueError) as error:
        raise FedtwinError(f"{setting} is not Parquet that can be read: {str(error).splitlines()[0].rstrip('.')}.") from None
    names = table.column_names
    targets = [name for name in names if name == TARGET or name.startswith(f"{TARGET}_")]
    features = sorted(name for name in names if name not in (*targets, CLIENT))
    if not features or (needs_targets and not targets):
        raise FedtwinError(f"{setting} has the columns {', '.join(names)}: a column target and columns of features are needed.")
    found = {f"x_{part}": _columns(setting, table, features), FEATURES: np.array(features)}
    if targets:
        y = _columns(setting, table, sorted(targets))
        found[f"y_{part}"] = y[:, 0] if targets == [TARGET] else y
    return {**found, "client": np.asarray(table[CLIENT].to_pylist())} if CLIENT in names and part == "train" else found


def _columns(setting: str, table: Any, names: list[str]) -> NDArray[Any]:
    """(rows, columns), or (rows, columns, length) of columns of lists that are all of one length."""
    found: list[NDArray[Any]] = []
    for name in names:
        column = table[name]
        if column.null_count:
            raise FedtwinError(f"{setting}: the column {name} has rows without a value.")
        values = column.to_pylist() if str(column.type).startswith(("list", "large_list", "fixed_size_list")) else None
        try:
            array = column.to_numpy() if values is None else np.array(values)
        except ValueError:
            raise FedtwinError(f"{setting}: the lists in the column {name} differ in length.") from None
        if not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
            raise FedtwinError(f"{setting}: the column {name} holds {column.type}: numbers, or lists of them, are needed.")
        if found and array.shape != found[0].shape:
            raise FedtwinError(
                f"{setting}: the columns {names[0]} and {name} differ in shape: all numbers, or lists of one length."
            )
        found.append(array)
    return np.stack(found, 1)
