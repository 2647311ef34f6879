"""A live run's folder: its ledger while it goes on, its files once it has ended."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.live.run.ledger import LEDGER_NAME, first_lines, segment_path
from fedtwin.live.run.model import MODELS
from fedtwin.live.run.tables import summary_of, tables_from, tables_of
from fedtwin.records import EVALUATIONS, REFUSALS, read_rounds, read_summary, rounds_schema, to_table
from fedtwin.records.arrays import table_of
from fedtwin.records.files import DEVICES_NAME, EVALUATIONS_NAME, REFUSALS_NAME, ROUNDS_NAME, START_NAME
from fedtwin.records.summary import NO_ROUNDS
from fedtwin.records.tables import read_table, require_columns
from fedtwin.records.tasks import TASKS, TASKS_NAME
from fedtwin.runs.devices import read_devices
from fedtwin.runs.following import News
from fedtwin.runs.replay import Replay
from fedtwin.runs.run import Moment, Run, Within
from fedtwin.runs.sums import described
from fedtwin.twin import Twin


class LiveRunFolder(Run):
    """Its twin always comes from the ledger, which has ``gain`` and ``cpu_hz`` as devices answered them, and no telemetry."""

    is_live: ClassVar[bool] = True

    @cached_property
    def summary(self) -> dict[str, Any]:
        if self.finished:
            return read_summary(self.path)
        state, began = self._replay.state, self._replay.state.began
        so_far = summary_of(state, self._replay.book, lambda means: described(self.config, means))
        named = {} if began is None else {"package_version": began.package_version, "config_hash": began.config_hash}
        return {**described(self.config, NO_ROUNDS), **so_far, **named}

    @property
    def identity(self) -> str | None:
        """What tells it from other runs of its name; None before its first line is written."""
        began = self._replay.state.began
        return None if began is None else began.identity

    @cached_property
    def devices(self) -> pa.Table:
        return read_devices(self.path, self.config, finished=True) if self.finished else self._tables[DEVICES_NAME]

    @cached_property
    def start(self) -> pa.Table:
        return self._table(START_NAME, self._schema)

    @cached_property
    def rounds(self) -> pa.Table:
        if not self.finished:
            return self._tables[ROUNDS_NAME]
        table = read_rounds(self.path)
        require_columns(table, self._schema, self.path / ROUNDS_NAME)
        return table

    @cached_property
    def tasks(self) -> pa.Table:
        return self._table(TASKS_NAME, TASKS)

    @cached_property
    def evaluations(self) -> pa.Table:
        return self._table(EVALUATIONS_NAME, EVALUATIONS)

    @cached_property
    def refusals(self) -> pa.Table:
        return self._table(REFUSALS_NAME, REFUSALS)

    @property
    def _schema(self) -> pa.Schema:
        timeout = self.config.run.sync_timeout_s is not None
        return rounds_schema(trace=False, learning=self.config.learning is not None, timeout=timeout)

    def _table(self, name: str, schema: pa.Schema) -> pa.Table:
        return read_table(self.path, name, schema, finished=True) if self.finished else self._tables[name]

    @cached_property
    def _replay(self) -> Replay:
        replay = Replay(self.config, self.path / LEDGER_NAME)
        replay.read_on()
        return replay

    @cached_property
    def _tables(self) -> dict[str, pa.Table]:
        return tables_of(self._replay.state, self._replay.book)

    def at_rest(self) -> "LiveRunFolder":
        if self.finished:
            return self
        state, book = self._replay.state, self._replay.book.at_rest()
        ranks = list(state.coordinator.ranks) if state.started else []
        resting = _Resting(self.path, partial(tables_from, book, state.config, list(state.names), ranks))
        resting.__dict__["_replay"] = self._replay
        return resting

    def _model_path(self) -> Path:
        """While the run goes on, the newest version: what an earlier stop has left is older."""
        if self.finished:
            return super()._model_path()
        return max((self.path / MODELS).glob("model-*.safetensors"), default=self.path / MODELS / "model.safetensors")

    def reporter(self) -> Callable[[], News]:
        replay = Replay(self.config, self.path / LEDGER_NAME)
        book = replay.book
        rows = evaluations = refusals = 0

        def next_news() -> News:
            nonlocal rows, evaluations, refusals
            now = LiveRunFolder(self.path)
            now.__dict__["_replay"] = replay
            happened = tuple(replay.read_on())
            news = News(
                now,
                to_table([row for row in book.rows[rows:] if row.round > 0], self._schema),
                table_of(book.evaluations[evaluations:], EVALUATIONS),
                table_of(book.refusals[refusals:], REFUSALS),
                happened,
            )
            rows, evaluations, refusals = len(book.rows), len(book.evaluations), len(book.refusals)
            return news

        return next_news

    @property
    def _started(self) -> Replay:
        if not self._replay.state.started:
            joined = len(self._replay.state.members)
            raise FedtwinError(f"{str(self.path)!r} has no twin yet: the run has not started, {joined} devices have joined.")
        return self._replay

    def batches(self, *names: str, within: Within | None = None) -> Iterator[dict[str, NDArray[Any]]]:  # noqa: ARG002
        yield {name: self.rounds[name].to_numpy() for name in names}

    def _revisions(self) -> tuple[int, int]:
        return self._started.rounds[0], len(self._replay.clocks_s)

    def _revision_of_round(self, round_: int) -> int:
        replay = self._started
        if round_ not in replay.rounds:
            raise self._no_such_round(round_, max(replay.rounds))
        return replay.at_round(round_)

    def _revision_of_second(self, seconds: float) -> int:
        replay = self._started
        if seconds > replay.end_s:
            raise self._no_such_second(seconds, replay.end_s)
        return replay.at_seconds(seconds)

    def _twin_at(self, revision: int) -> Twin:
        return self._started.after(revision)

    def drained(self, *, round: int | None = None, revision: int | None = None) -> frozenset[str]:
        return self._started.drained_at(self._revision(round, None, revision))

    def _moment_of(self, revision: int) -> Moment:
        replay = self._started
        return Moment(
            revision, replay.round_at(revision), max(replay.clocks_s[revision - 1], 0.0), replay.queue_round_at(revision)
        )


class _Resting(LiveRunFolder):
    """One whose tables are of the moment it was made, whenever they are asked for."""

    def __init__(self, path: Path, make_tables: Callable[[], dict[str, pa.Table]]) -> None:
        super().__init__(path)
        self.finished, self._make_tables = False, make_tables

    @cached_property
    def _tables(self) -> dict[str, pa.Table]:
        return self._make_tables()


def last_line_age_s(folder: Path) -> float:
    """Wall seconds since something was last written into a live run's ledger."""
    path = folder / LEDGER_NAME
    firsts = first_lines(path)
    return max(time.time() - segment_path(path, firsts[-1]).stat().st_mtime, 0.0) if firsts else 0.0


def ledger_files(folder: Path) -> dict[str, tuple[int, int]]:
    """The segments of a live run's ledger, each with which file it is and how long."""
    found = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("ledger") and entry.name.endswith(".jsonl"):
                stat = entry.stat()
                found[entry.name] = stat.st_ino, stat.st_size
    return found


def has_lost_lines(before: dict[str, tuple[int, int]], now: dict[str, tuple[int, int]]) -> bool:
    """A ledger only grows: a segment that is gone, shorter or another file is not the one that was read."""
    return any(name not in now or now[name][0] != file or now[name][1] < size for name, (file, size) in before.items())
