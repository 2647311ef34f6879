"""A simulation's folder: finished, killed, or being written."""

import json
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.learning.evaluation import MEASURED
from fedtwin.records import EVALUATIONS, REFUSALS, read_rounds, read_summary, rounds_schema
from fedtwin.records.files import (
    DEVICES_NAME,
    EVALUATIONS_NAME,
    REFUSALS_NAME,
    ROUNDS_NAME,
    START_NAME,
    SUMMARY_NAME,
    UNFINISHED_NAME,
)
from fedtwin.records.folder import part_name, rows_of_a_full_part
from fedtwin.records.tables import read_table, require_columns, row_groups
from fedtwin.records.tasks import TASKS
from fedtwin.runs.devices import read_devices
from fedtwin.runs.following import News
from fedtwin.runs.history import History
from fedtwin.runs.rows import LATE, NO_PART, Rows, both, require_numbered, rows_by_column, rows_of
from fedtwin.runs.run import Moment, Run, Within
from fedtwin.runs.sums import described, summary_of
from fedtwin.twin import Twin


class SimulatedRun(Run):
    """Its twin is derived from the records, which hold all that the server learned."""

    _verified = False

    @cached_property
    def summary(self) -> dict[str, Any]:
        return read_summary(self.path) if self.finished else self._summary_so_far()

    @cached_property
    def devices(self) -> pa.Table:
        return read_devices(self.path, self.config, finished=self.finished)

    @cached_property
    def start(self) -> pa.Table:
        needed = self.config.run.mode == "async" and any((self.path / ROUNDS_NAME).glob(part_name(0)))
        if needed and not (self.path / START_NAME).exists():
            raise FedtwinError(f"{str(self.path)!r} is damaged: {START_NAME} is missing.")
        return self._table(START_NAME, self._schema)

    @cached_property
    def rounds(self) -> pa.Table:
        return self._read_rounds(self._schema)

    @property
    def tasks(self) -> pa.Table:
        return TASKS.empty_table()

    @cached_property
    def evaluations(self) -> pa.Table:
        return self._table(EVALUATIONS_NAME, EVALUATIONS)

    @cached_property
    def refusals(self) -> pa.Table:
        return self._table(REFUSALS_NAME, REFUSALS)

    @cached_property
    def _mark(self) -> dict[str, Any]:
        """``unfinished.json``, which names a run that has not ended; empty where the run has."""
        path = self.path / UNFINISHED_NAME
        try:
            mark = json.loads(plain_file(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            mark = None
        if isinstance(mark, dict) and isinstance(mark.get("trace"), bool):
            return mark
        if (self.path / SUMMARY_NAME).exists():
            return {}
        raise FedtwinError(f"{str(path)!r} is damaged: what it should say of the run cannot be read.")

    @property
    def _traced(self) -> bool:
        return self._mark.get("trace") is True

    @cached_property
    def _schema(self) -> pa.Schema:
        return rounds_schema(
            trace=self._traced,
            learning=self.config.learning is not None,
            timeout=self.config.run.sync_timeout_s is not None,
        )

    def _table(self, name: str, schema: pa.Schema) -> pa.Table:
        return read_table(self.path, name, schema, finished=self.finished)

    def _read_rounds(self, schema: pa.Schema, skip: int = 0) -> pa.Table:
        """All columns, or with a smaller schema those; without the first ``skip`` rows."""
        full = rows_of_a_full_part(self.config, trace=self._traced)
        columns = None if schema is self._schema else schema.names
        table = read_rounds(self.path, columns, full_part=full, skip=skip, verify=not self._verified)
        self._verified = self.finished
        if table.num_columns == 0:
            return schema.empty_table()
        require_columns(table, schema, self.path / ROUNDS_NAME)
        if not self.finished and "round" in table.column_names:
            require_numbered(table["round"].to_numpy(), repr(str(self.path)), first=None if skip else 1)
        return table

    @cached_property
    def _rows(self) -> Rows:
        where = repr(str(self.path))
        if "rounds" in self.__dict__:
            return rows_of(self.start, self.__dict__["rounds"], self.config, finished=self.finished, where=where)
        return rows_by_column(self.start, self._column, self.config, finished=self.finished, where=where)

    def _column(self, name: str) -> "pa.ChunkedArray[Any] | None":
        return self._read_rounds(pa.schema([self._schema.field(name)]))[name] if name in self._schema.names else None

    @cached_property
    def _history(self) -> History:
        samples = self.devices["samples"].to_numpy()
        if len(samples) != self.config.fleet.devices:
            raise FedtwinError(f"{str(self.path)!r} is damaged: {DEVICES_NAME} has not one row per device.")
        where = repr(str(self.path))
        if self.finished and "rounds" not in self.__dict__:
            without = (*LATE, *NO_PART)
            rows = [rows_by_column(self.start, self._column, self.config, finished=True, where=where, without=without)]
            late = partial(both, self.start, self._column, small=True)
            return History(rows.pop(), samples, self.config, where, late)
        rows = [self._rows]
        if self.finished:
            del self.__dict__["_rows"]  # the index takes in all that is asked of them
        return History(rows.pop(), samples, self.config, where)

    def reporter(self) -> Callable[[], News]:
        seen = {"rounds": 0, "evaluations": 0, "refusals": 0}

        def next_news() -> News:
            now = SimulatedRun(self.path)
            rounds = now._read_rounds(now._schema, seen["rounds"]) if now.config.run.records else now._schema.empty_table()
            news = News(now, rounds, now.evaluations.slice(seen["evaluations"]), now.refusals.slice(seen["refusals"]))
            for name in seen:
                seen[name] += getattr(news, name).num_rows
            return news

        return next_news

    def batches(self, *names: str, within: Within | None = None) -> Iterator[dict[str, NDArray[Any]]]:
        schema = pa.schema([self._schema.field(name) for name in names])
        if not self.finished:
            table = self._read_rounds(schema)
            yield {name: table[name].to_numpy() for name in names}
            return
        self._verify_rounds()
        yield from row_groups(self.path / ROUNDS_NAME, names, within)

    def _verify_rounds(self) -> None:
        """Once: what is read later is the same file, whose pages have checksums of their own."""
        if not self._verified:
            self._read_rounds(pa.schema([self._schema.field("round")]))

    def _revisions(self) -> tuple[int, int]:
        return 0, self._history.end

    def _revision_of_round(self, round_: int) -> int:
        if not 0 <= round_ <= self._history.rounds:
            raise self._no_such_round(round_, self._history.rounds)
        return self._history.at_round(round_)

    def _revision_of_second(self, seconds: float) -> int:
        if seconds > self._history.end_s:
            raise self._no_such_second(seconds, self._history.end_s)
        return self._history.at_seconds(seconds)

    def _twin_at(self, revision: int) -> Twin:
        return self._history.before(revision)

    def _moment_of(self, revision: int) -> Moment:
        return Moment(revision, *self._history.when(revision))

    def _summary_so_far(self) -> dict[str, Any]:
        summary = summary_of(self._rows, self.config, self.twin(), self._history.end_s)
        of_training: dict[str, Any] = {}
        if self.evaluations.num_rows:
            last = self.evaluations.slice(self.evaluations.num_rows - 1).to_pylist()[0]
            of_training = {name: last[name] for name in MEASURED if last.get(name) is not None}
        if self.config.learning is not None:
            of_training["refusals"] = self.refusals.num_rows
        named: dict[str, Any] = {key: self._mark[key] for key in ("package_version", "config_hash") if key in self._mark}
        return {**described(self.config, summary), **of_training, **named}
