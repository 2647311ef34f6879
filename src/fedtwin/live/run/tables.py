"""The records of a live run, made from its ledger: the same files as a simulation's, and every task beside its prediction."""

import math
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedtwin.config import Config, identity_of
from fedtwin.files import write_whole
from fedtwin.formulas.cost import cost, within
from fedtwin.formulas.terms import Terms, terms_of
from fedtwin.learning.aggregate import Refusal
from fedtwin.learning.evaluation import Evaluation
from fedtwin.live.run import events
from fedtwin.live.run.core import Core
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import LEDGER_NAME, read_events
from fedtwin.live.run.live_run import MODELS
from fedtwin.live.run.model import model_path
from fedtwin.records import DEVICES, Row, Tally, rounds_schema, to_table
from fedtwin.records.folder import (
    DEVICES_NAME,
    EVALUATIONS_NAME,
    REFUSALS_NAME,
    ROUNDS_NAME,
    START_NAME,
    table_of,
    write_summary,
    write_table,
)
from fedtwin.records.schema import EVALUATIONS, REFUSALS
from fedtwin.records.summary import run_summary

TASKS_NAME, MODEL_NAME = "tasks.parquet", "model.safetensors"
_TASK_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("round", pa.int64()),
    ("device", pa.int64()),
    ("name", pa.string()),
    ("dispatched_s", pa.float64()),
    ("ended_s", pa.float64()),
    ("outcome", pa.string()),
    ("version", pa.int64()),
    ("staleness", pa.int64()),
    ("twin_s", pa.float64()),
    ("predicted_s", pa.float64()),
    ("actual_s", pa.float64()),
    ("elapsed_s", pa.float64()),
    ("link_s", pa.float64()),
    ("twin_j", pa.float64()),
    ("predicted_j", pa.float64()),
    ("actual_j", pa.float64()),
    ("twin_cost", pa.float64()),
    ("predicted_cost", pa.float64()),
    ("actual_cost", pa.float64()),
    ("clock_cost", pa.float64()),
    ("believed", pa.bool_()),
    ("time_source", pa.string()),
    ("energy_source", pa.string()),
    ("uploaded_bytes", pa.int64()),
]
TASKS = pa.schema(_TASK_COLUMNS)


class Book:
    """Reads events in order and keeps what the tables need."""

    def __init__(self, config: Config, names: list[str]) -> None:
        self._config, self._names = config, names
        self._terms: Terms = terms_of(config)
        self._news: deque[tuple[int, int, float | None]] = deque()
        self._asked: events.Asked | None = None
        self._row_of: dict[str, int] = {}
        self._sent: dict[str, events.Dispatched] = {}
        self.rows: list[Row] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self._sums: dict[int, tuple[int, float, float, float]] = {}
        self.start_s = 0.0
        self.evaluations: list[Evaluation] = []
        self.refusals: list[Refusal] = []
        self.refused: dict[tuple[str, str], int] = {}
        self.samples: dict[str, int] = {}
        self.cpu_hz: dict[int, float] = {}
        self._round = 0

    def read(self, log: Iterable[Event]) -> None:
        for event in log:
            self._read(event)

    def _read(self, event: Event) -> None:
        match event:
            case events.Joined():
                self.samples[event.name] = event.samples
            case events.Started():
                self.start_s = event.at_s
            case events.Asked():
                if event.round > self._round:
                    self._round = event.round
                self._asked = event
            case events.Declined() if self._asked is not None:
                gain, cpu_hz = event.gain or math.nan, event.cpu_hz or math.nan
                self._add(self._row(self._asked, event.at_s - self.start_s, gain, cpu_hz, declined=event.reason), last=False)
            case events.Dispatched() if self._asked is not None:
                self._row_of[event.token], self._sent[event.token] = len(self.rows), event
                self._add(self._row(self._asked, event.at_s - self.start_s, event.gain, event.cpu_hz, sent=event), last=True)
                self.cpu_hz[event.device] = event.cpu_hz
                self.tasks[event.token] = self._task(event)
            case events.Applied():
                if not event.late:
                    self._settle(event.token, event)
                self._news.append((event.device, event.staleness, event.train_loss))
                self._end(event)
            case events.Passed():
                if self._news:
                    self._news.popleft()
            case events.GivenUp():
                self._give_up(event)
            case events.Refused():
                key = event.name, event.reason.partition(":")[0]
                self.refused[key] = max(event.count, self.refused.get(key, 0))
                device = self._names.index(event.name) if event.name in self._names else -1
                self.refusals.append(Refusal(self._round, event.at_s - self.start_s, device, f"{event.what}: {event.reason}"))
            case events.Measured():
                self.evaluations.append(
                    Evaluation(
                        event.round, event.model_at_s - self.start_s, event.energy_j, event.test_loss, event.test_accuracy
                    )
                )
            case _:
                pass

    def _add(self, row: Row, *, last: bool) -> None:
        """Every upload opens a round, in the order they come, and stands in all rows of it."""
        if self._news and row.round > 0:
            device, staleness, train_loss = self._news[0]
            row = row._replace(arrived=device, staleness=staleness, train_loss=train_loss)
            if last:
                self._news.popleft()
        self.rows.append(row)

    def _settle(self, token: str, took: events.Applied) -> None:
        """What was predicted in the row gives way to what was measured."""
        place = self._row_of[token]
        self.rows[place] = self._with(self.rows[place], took.compute_s, took.upload_s, took.compute_j, took.upload_j, took.cost)

    def _give_up(self, event: events.GivenUp) -> None:
        sent, place = self._sent[event.token], self._row_of[event.token]
        upload_s = max(event.at_s - sent.at_s - sent.compute_s, 0.0)
        row = self.rows[place]
        self.rows[place] = self._with(row, sent.compute_s, upload_s, sent.compute_j, sent.upload_j, event.cost)
        self.tasks[event.token].update(outcome=f"given up: {event.reason}", ended_s=event.at_s - self.start_s)

    def _with(self, row: Row, compute_s: float, upload_s: float, compute_j: float, upload_j: float, charged: float) -> Row:
        return row._replace(
            compute_s=compute_s,
            upload_s=upload_s,
            compute_j=compute_j,
            upload_j=upload_j,
            cost=charged,
            time_ok=within(compute_s + upload_s, self._terms.max_time_s),
            energy_ok=within(compute_j + upload_j, self._terms.max_energy_j),
        )

    def _row(
        self,
        asked: events.Asked,
        at_s: float,
        gain: float,
        cpu_hz: float,
        *,
        declined: str | None = None,
        sent: events.Dispatched | None = None,
    ) -> Row:
        row = Row(
            round=asked.round,
            clock_s=at_s,
            arrived=None,
            device=asked.device,
            gain=gain,
            cpu_hz=cpu_hz,
            samples=self.samples[self._names[asked.device]],
            power_w=sent.power_w if sent is not None else 0.0,
            compute_s=None,
            upload_s=None,
            compute_j=None,
            upload_j=None,
            cost=None,
            score=asked.score,
            queue=asked.queue,
            total_queue=asked.total_queue,
            staleness=None,
            declined=sent is None,
            time_ok=True,
            energy_ok=True,
            decline_reason=declined,
        )
        return row if sent is None else self._with(row, sent.compute_s, sent.upload_s, sent.compute_j, sent.upload_j, sent.cost)

    def _task(self, sent: events.Dispatched) -> dict[str, Any]:
        """A task as it is handed out: what the twin had seen of the device on average, and what the device predicts."""
        count, *sums = self._sums.get(sent.device, (0, 0.0, 0.0, 0.0))
        known = [total / count if count else None for total in sums]
        return {
            "round": sent.round,
            "device": sent.device,
            "name": self._names[sent.device],
            "dispatched_s": sent.at_s - self.start_s,
            "outcome": "open",
            "version": sent.version,
            "twin_s": known[0],
            "twin_j": known[1],
            "twin_cost": known[2],
            "predicted_s": sent.compute_s + sent.upload_s,
            "predicted_j": sent.compute_j + sent.upload_j,
            "predicted_cost": sent.cost,
        }

    def _end(self, took: events.Applied) -> None:
        time_s, energy_j = took.compute_s + took.upload_s, took.compute_j + took.upload_j
        count, *sums = self._sums.get(took.device, (0, 0.0, 0.0, 0.0))
        self._sums[took.device] = count + 1, sums[0] + time_s, sums[1] + energy_j, sums[2] + took.cost
        self.tasks[took.token].update(
            ended_s=took.at_s - self.start_s,
            outcome="late" if took.late else "applied",
            staleness=took.staleness,
            actual_s=time_s,
            actual_j=energy_j,
            actual_cost=took.cost,
            clock_cost=cost(self._terms, took.elapsed_s, energy_j),
            elapsed_s=took.elapsed_s,
            link_s=took.link_s,
            believed=took.believed,
            time_source=_mixed(took.sources, "compute_s", "upload_s"),
            energy_source=_mixed(took.sources, "compute_j", "upload_j"),
            uploaded_bytes=took.uploaded_bytes,
        )


def _mixed(sources: dict[str, str], *keys: str) -> str:
    kinds = sorted({sources.get(key, "modelled") for key in keys})
    return "+".join(kinds)


def write_records(folder: Path, core: Core) -> dict[str, Any]:
    """All tables of a run whose ledger has come to an end for now, and its summary."""
    config = core.config
    book = Book(config, core.names)
    book.read(read_events(folder / LEDGER_NAME))
    schema = rounds_schema(trace=False, learning=config.learning is not None)
    write_table(to_table([row for row in book.rows if row.round == 0], schema), folder / START_NAME)
    rounds = [row for row in book.rows if row.round > 0]
    write_table(to_table(rounds, schema), folder / ROUNDS_NAME)
    write_table(pa.Table.from_pylist(list(book.tasks.values()), schema=TASKS), folder / TASKS_NAME)
    write_table(_devices(core, book), folder / DEVICES_NAME)
    if config.learning is not None:
        write_table(table_of(book.evaluations, EVALUATIONS), folder / EVALUATIONS_NAME)
    if book.refusals:
        write_table(table_of(book.refusals, REFUSALS), folder / REFUSALS_NAME)
    summary = _summary(core, book, rounds)
    if core.finished:
        model = model_path(folder / MODELS, core.version)
        write_whole(folder / MODEL_NAME, model.read_bytes(), fsync=core.live.fsync)
        write_summary(folder, summary)
    return summary


def _devices(core: Core, book: Book) -> pa.Table:
    count = len(core.names)
    columns = {
        "device": list(range(count)),
        "distance_m": [math.nan] * count,
        "path_gain": [math.nan] * count,
        "cpu_hz_mean": [book.cpu_hz.get(device, math.nan) for device in range(count)],
        "samples": [book.samples[name] for name in core.names],
        "tie_rank": core.tie_ranks if core.started else [],
    }
    table = pa.table({field.name: pa.array(columns[field.name], type=field.type) for field in DEVICES})
    return table.append_column("name", pa.array(core.names, type=pa.string()))


def _summary(core: Core, book: Book, rounds: list[Row]) -> dict[str, Any]:
    tally = Tally()
    for row in rounds:
        tally.add(row, 0.0 if row.compute_s is None or row.upload_s is None else row.compute_s + row.upload_s)
    outcomes = [str(task["outcome"]) for task in book.tasks.values()]
    extra = {
        "live": True,
        "devices": len(core.names),
        "uploads_applied": core.applied,
        "uploads_late": outcomes.count("late"),
        "tasks_given_up": sum(outcome.startswith("given up") for outcome in outcomes),
        "refusals": sum(book.refused.values()),
        "model_version": core.version,
        "quarantined": [name for name in core.members if core.is_quarantined(name)],
    }
    if not core.started or core.round == 0:
        return extra
    selections = [device.selections * device.samples.value for device in core.twin.devices]
    summary = tally.summary(
        virtual_time_s=core.last_at_s - book.start_s,
        rounds=core.round,
        trained=selections,
        total_queue=core.coordinator.total_queue_at_the_end(),
    )
    evaluated = {}
    if book.evaluations:
        evaluated = {"test_loss": book.evaluations[-1].test_loss, "test_accuracy": book.evaluations[-1].test_accuracy}
    return {**run_summary(core.config, summary, identity_of(core.config, load_models=False)), **evaluated, **extra}


def read_tasks(folder: Path) -> pa.Table:
    """Every task of a live run, its prediction beside what was measured."""
    return pq.read_table(folder / TASKS_NAME)
