"""Reads the tables of a run folder, of a run that has ended, was killed or goes on. Nothing is written, no code is run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.records.checksums import names_written, require_as_written
from fedtwin.records.files import ROUNDS_NAME, SUMMARY_NAME
from fedtwin.records.folder import OLD_PARTS, part_name

TRIES = 5
Columns = Sequence[str] | None

ADDED_LATER = ("global_loss", "gradient_norm2", "plain_test_loss", "plain_test_metric", "cost_spent")
"""Columns that a folder written before there were such has not."""


def read_rounds(
    path: Path, columns: Columns = None, *, full_part: int | None = None, skip: int = 0, verify: bool = True
) -> pa.Table:
    """The rounds of a run folder, finished or not; all columns, or some. Where there is none yet, a table without columns.

    ``full_part`` is the number of rows of a part that is full. A resumed run writes its parts again: with ``full_part``, those
    after one that is not full are left out, because they are still the ones from before. ``skip`` leaves out the first rows.
    Without ``verify`` the file is held against its checksum no more.
    """
    missing = ""
    for _ in range(TRIES):
        try:
            return _rounds_as_they_lie(path, columns, full_part, skip, verify)
        except FileNotFoundError as error:  # the run ended meanwhile, and its parts have become one file
            missing = str(error)
    if missing:
        raise FedtwinError(f"{str(path / ROUNDS_NAME)!r} is damaged: {missing} is missing.")
    raise FedtwinError(f"{str(path)!r} has no {ROUNDS_NAME}: it is no run folder, or its run kept no records.")


def _rounds_as_they_lie(path: Path, columns: Columns, full_part: int | None, skip: int, verify: bool) -> pa.Table:
    whole, finished = path / ROUNDS_NAME, (path / SUMMARY_NAME).exists()
    if whole.is_file() or (finished and whole.exists()):
        if finished and verify:
            require_as_written(path, ROUNDS_NAME)
        return read_file(whole, columns).slice(skip)
    parts = next((place for place in (whole, path / OLD_PARTS) if place.is_dir()), whole)
    tables: list[pa.Table] = []
    parts_to_skip, skip = divmod(skip, full_part) if full_part is not None else (0, skip)
    for part in _numbered(parts)[parts_to_skip:]:
        tables.append(read_file(part, columns))
        if full_part is not None and tables[-1].num_rows < full_part:
            break
    if not tables and not parts.is_dir():
        raise FileNotFoundError
    try:
        return pa.concat_tables(tables).slice(skip) if tables else pa.table({})
    except pa.ArrowException:
        raise FedtwinError(f"{str(parts)!r} is damaged: its parts have different columns.") from None


def _numbered(parts: Path) -> list[Path]:
    """The parts in their order, none of which is missing in between."""
    found = sorted(parts.glob("part-*.parquet"))
    for number, part in enumerate(found):
        if part.name != part_name(number):
            raise FileNotFoundError(part_name(number))
    return found


def read_table(folder: Path, name: str, schema: pa.Schema, *, finished: bool) -> pa.Table:
    """A table of a run folder; empty, with the columns of the schema, where the run has written none."""
    path = folder / name
    if not path.exists() and not (finished and name in names_written(folder)):
        return schema.empty_table()
    if finished or name in names_written(folder):
        require_as_written(folder, name)
    try:
        table = read_file(path)
    except FileNotFoundError:
        return schema.empty_table()
    table = _with_columns_of_later(table, schema)
    require_columns(table, schema, path)
    return table


def _with_columns_of_later(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table from before there were some columns has nothing in them."""
    for field in schema:
        if field.name in ADDED_LATER and field.name not in table.schema.names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table


def require_columns(table: pa.Table, schema: pa.Schema, path: Path) -> None:
    """The table has every column of the schema, of its type."""
    for field in schema:
        if field.name not in table.schema.names or table.schema.field(field.name).type != field.type:
            raise FedtwinError(f"{str(path)!r} is damaged: it has no column {field.name} of type {field.type}.")


def read_file(path: Path, columns: Columns = None) -> pa.Table:
    """One Parquet file whose checksums are right, opened once, so that one that takes its place meanwhile does not matter."""
    try:
        with pq.ParquetFile(plain_file(path), page_checksum_verification=True) as file:
            table = file.read(columns=None if columns is None else list(columns))
            if table.num_rows != file.metadata.num_rows:
                raise OSError(f"it should have {file.metadata.num_rows} rows")
            return table
    except FileNotFoundError:
        raise FileNotFoundError(path.name) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FedtwinError(f"{str(path)!r} cannot be read: {str(error).splitlines()[0].rstrip('.')}.") from None


def row_groups(
    path: Path, columns: Sequence[str], within: tuple[str, float, float] | None = None
) -> Iterator[dict[str, NDArray[Any]]]:
    """The row groups of one Parquet file, one after the other, but for those that say themselves they have nothing ``within``
    a column's least and most.
    """
    try:
        with pq.ParquetFile(plain_file(path), page_checksum_verification=True) as file:
            for number in range(file.metadata.num_row_groups):
                if within is None or _may_have(file.metadata.row_group(number), *within):
                    table = file.read_row_group(number, columns=list(columns))
                    yield {name: table[name].to_numpy() for name in columns}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FedtwinError(f"{str(path)!r} cannot be read: {str(error).splitlines()[0].rstrip('.')}.") from None


def _may_have(group: Any, column: str, low: float, high: float) -> bool:
    for place in range(group.num_columns):
        found = group.column(place)
        if found.path_in_schema == column:
            known = found.statistics
            return known is None or not known.has_min_max or (known.max >= low and known.min <= high)
    return True
