"""The run folder. While a run goes on, ``rounds.parquet`` is a folder of parts, so a kill at any moment leaves readable
records; when it ends, the parts become one file of the same name. ``summary.json`` is written last.

Parts are cut by the number of rows alone, so a resumed run, which replays its schedule, writes the same parts again.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import pyarrow as pa
import pyarrow.parquet as pq

from fedtwin import __version__
from fedtwin.config import HASH_FORMAT, Config
from fedtwin.errors import FedtwinError
from fedtwin.records.arrays import table_of
from fedtwin.records.files import (
    DEVICES_NAME,
    EVALUATIONS_NAME,
    LOCK_NAME,
    REFUSALS_NAME,
    ROUNDS_NAME,
    START_NAME,
    UNFINISHED_NAME,
    make_new_folder,
    write_config,
    write_mark,
    write_summary,
    write_table,
)
from fedtwin.records.lock import Lock
from fedtwin.records.schema import EVALUATIONS, REFUSALS, Row, rounds_schema, to_table
from fedtwin.records.writing import reason_of, telling_of_failed_writes

OLD_PARTS, WHOLE = ".rounds.parts", ".rounds.parquet"
ROWS_PER_PART = 10_000
REPETITIVE = ["arrived", "device", "samples", "staleness", "decline_reason"]
VALUES_PER_PART = 3_000_000
SAVE_EVERY_S = 5.0
P = ParamSpec("P")


def _writes(method: "Callable[Concatenate[RunFolder, P], None]") -> "Callable[Concatenate[RunFolder, P], None]":
    """A full disk is one sentence."""

    @wraps(method)
    def writing(folder: "RunFolder", /, *arguments: P.args, **more: P.kwargs) -> None:
        with telling_of_failed_writes(folder.path):
            method(folder, *arguments, **more)

    return writing


class RunFolder:
    """Writes one run, new or resumed. A new run overwrites nothing. ``name`` is its configuration's hash."""

    def __init__(self, path: Path, config: Config, devices: pa.Table, *, name: str, trace: bool, resume: bool = False) -> None:
        self.path = path
        self._keeps_rounds = config.run.records
        self._schema = rounds_schema(
            trace=trace, learning=config.learning is not None, timeout=config.run.sync_timeout_s is not None
        )
        self._rows: list[Row] = []
        self._parts = 0
        self._saved_at = time.monotonic()
        self._rows_per_part = rows_of_a_full_part(config, trace=trace)
        if resume:
            self._lock = Lock(path / LOCK_NAME)
            self._lay_the_parts_out_again()
            return
        make_new_folder(path)
        self._lock = Lock(path / LOCK_NAME)
        try:
            self._begin(config, devices, name=name, trace=trace)
        except BaseException as error:
            self._lock.release()
            shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, OSError):
                raise FedtwinError(f"out = {str(path)!r} cannot be written: {reason_of(error)}.") from None
            raise

    def _begin(self, config: Config, devices: pa.Table, *, name: str, trace: bool) -> None:
        """From the last of these files on the run can be resumed."""
        if self._keeps_rounds:
            (self.path / ROUNDS_NAME).mkdir()
        write_config(self.path, config)
        pq.write_table(devices, self.path / DEVICES_NAME)
        mark = {"config_hash": name, "hash_format": HASH_FORMAT, "package_version": __version__, "trace": trace}
        write_mark(self.path, mark)

    @property
    def rows_per_part(self) -> int:
        """0 where no rounds are kept."""
        return self._rows_per_part if self._keeps_rounds else 0

    def write_start(self, rows: list[Row]) -> None:
        """The first M dispatches, t = 0, which no mean counts."""
        self.write_start_table(to_table(rows, self._schema))

    @_writes
    def write_start_table(self, table: pa.Table) -> None:
        if self._keeps_rounds:
            write_table(table, self.path / START_NAME)

    @_writes
    def write_evaluations(self, evaluations: list[Any]) -> None:
        """All evaluations so far, as tuples in the order of the columns."""
        write_table(table_of(evaluations, EVALUATIONS), self.path / EVALUATIONS_NAME)

    @_writes
    def write_refusals(self, refusals: list[Any]) -> None:
        """All refusals so far, as tuples in the order of the columns; a run that refused nothing has no such file."""
        if refusals:
            write_table(table_of(refusals, REFUSALS), self.path / REFUSALS_NAME)
        else:
            (self.path / REFUSALS_NAME).unlink(missing_ok=True)

    def add(self, row: Row) -> None:
        if not self._keeps_rounds:
            return
        self._rows.append(row)
        if len(self._rows) >= self._rows_per_part:
            self.save()
            self._parts += 1
            self._rows.clear()
        elif len(self._rows) % 100 == 0 and time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Everything so far is on disk and readable; a part that is not full yet is written again later."""
        if self._rows:
            self.save_part(to_table(self._rows, self._schema))
        self._saved_at = time.monotonic()

    def add_part(self, table: pa.Table) -> None:
        """A part as a table, the last one or a full one."""
        if table.num_rows > 0 or self._parts == 0:
            self.save_part(table)
            self._parts += 1

    @_writes
    def save_part(self, table: pa.Table) -> None:
        """The part that is being filled, as it stands."""
        write_table(table, self.path / ROUNDS_NAME / part_name(self._parts), quick=True)

    @_writes
    def finish(self, summary: Mapping[str, Any]) -> None:
        """The parts become one file, and the summary is written."""
        old = self.path / OLD_PARTS
        if self._keeps_rounds:
            self._put_together(old)
        write_summary(self.path, summary)
        shutil.rmtree(old, ignore_errors=True)
        (self.path / UNFINISHED_NAME).unlink(missing_ok=True)

    def release(self) -> None:
        """Another fedtwin may write here now."""
        self._lock.release()

    def _put_together(self, old: Path) -> None:
        self.save()
        parts, whole = self.path / ROUNDS_NAME, self.path / WHOLE
        with pq.ParquetWriter(whole, self._schema, use_dictionary=REPETITIVE) as writer:  # type: ignore[arg-type]
            for part in sorted(parts.glob("part-*.parquet"))[: self._parts + bool(self._rows)]:
                with pq.ParquetFile(part) as file:  # pq.read_table would import pandas
                    writer.write_table(file.read())
        parts.rename(old)
        whole.rename(parts)

    @_writes
    def _lay_the_parts_out_again(self) -> None:
        """Wherever a run was killed, also while it put its parts together, they are a folder again."""
        if not self._keeps_rounds:
            return
        parts, old = self.path / ROUNDS_NAME, self.path / OLD_PARTS
        if parts.is_file():
            parts.unlink()
        if old.exists() and not parts.exists():
            old.rename(parts)
        parts.mkdir(exist_ok=True)


def part_name(number: int) -> str:
    return f"part-{number:06d}.parquet"


def rows_of_a_full_part(config: Config, *, trace: bool) -> int:
    """Fewer where every row holds lists over all devices."""
    return max(1, min(ROWS_PER_PART, VALUES_PER_PART // config.fleet.devices)) if trace else ROWS_PER_PART


def clear_rounds(path: Path) -> None:
    """The rounds that an unfinished run has written are gone; it will write them again."""
    for part in sorted((path / ROUNDS_NAME).glob("*.parquet"), reverse=True):
        part.unlink()
