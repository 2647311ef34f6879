"""The records of a live run, made from its ledger: the same files as a simulation's, and every task beside its prediction."""

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedtwin.config import identity_of
from fedtwin.files import write_whole
from fedtwin.formulas.terms import Quantities
from fedtwin.live.run import events
from fedtwin.live.run.book import Book
from fedtwin.live.run.core import Core
from fedtwin.live.run.ledger import LEDGER_NAME, DamageError, read_events
from fedtwin.live.run.model import MODELS, digest_of, model_path
from fedtwin.live.run.state import State
from fedtwin.records import DEVICES, Summary, Tally, rounds_schema, to_table
from fedtwin.records.arrays import table_of
from fedtwin.records.files import (
    DEVICES_NAME,
    EVALUATIONS_NAME,
    REFUSALS_NAME,
    ROUNDS_NAME,
    START_NAME,
    write_summary,
    write_table,
)
from fedtwin.records.schema import EVALUATIONS, REFUSALS
from fedtwin.records.summary import run_summary
from fedtwin.records.tasks import TASKS, TASKS_NAME

MODEL_NAME = "model.safetensors"
MIXED_IN = ("applied", "late")


def write_records(folder: Path, core: Core) -> dict[str, Any]:
    """All tables of a run whose ledger has come to an end for now, and its summary."""
    config = core.config
    book = Book(config)
    digest = None
    for event in read_events(folder / LEDGER_NAME):
        book.read(event)
        if isinstance(event, events.Began | events.Applied | events.Closed):
            digest = event.model_sha256 or digest
    for name, table in tables_of(core.state, book).items():
        if name == EVALUATIONS_NAME and config.learning is None:
            continue
        if name == REFUSALS_NAME and table.num_rows == 0:
            continue
        write_table(table, folder / name)
    summary = summary_of(core.state, book, lambda means: run_summary(config, means, identity_of(config, load_models=False)))
    if core.finished:
        path = model_path(folder / MODELS, core.version)
        model = path.read_bytes()
        if digest is not None and digest_of(model) != digest:
            raise DamageError(f"The model {str(path)!r} is damaged: it is not what the ledger says was written.")
        write_whole(folder / MODEL_NAME, model, fsync=core.live.fsync)
        write_summary(folder, summary)
    return summary


def tables_of(state: State, book: Book) -> dict[str, pa.Table]:
    """Every table by the name of its file."""
    config = state.config
    schema = rounds_schema(trace=False, learning=config.learning is not None, timeout=config.run.sync_timeout_s is not None)
    rows = book.in_order()
    return {
        START_NAME: to_table([row for row in rows if row.round == 0], schema),
        ROUNDS_NAME: to_table([row for row in rows if row.round > 0], schema),
        TASKS_NAME: pa.Table.from_pylist(list(book.tasks.values()), schema=TASKS),
        DEVICES_NAME: _devices(state, book),
        EVALUATIONS_NAME: table_of(book.evaluations, EVALUATIONS),
        REFUSALS_NAME: table_of(book.refusals, REFUSALS),
    }


def _devices(state: State, book: Book) -> pa.Table:
    count = len(state.names)
    own = [book.own(device) for device in range(count)]
    columns: dict[str, list[Any]] = {
        "device": list(range(count)),
        "distance_m": [math.nan] * count,
        "path_gain": [math.nan] * count,
        "cpu_hz_mean": [book.cpu_hz.get(device, math.nan) for device in range(count)],
        "samples": [book.joined[name].samples for name in state.names],
        **{name: [of_device[name] for of_device in own] for name in (*Quantities._fields, "samples_spread")},
        "tie_rank": list(state.coordinator.ranks) if state.started else [],
    }
    table = pa.table({field.name: pa.array(columns[field.name], type=field.type) for field in DEVICES})
    return table.append_column("name", pa.array(state.names, type=pa.string()))


def summary_of(state: State, book: Book, described: Callable[[Summary], dict[str, Any]]) -> dict[str, Any]:
    """What has come of the run so far; ``described`` says what the means are the means of."""
    tally = Tally()
    for row in book.in_order():
        if row.round > 0:
            own_s = 0.0 if row.compute_s is None or row.upload_s is None else row.compute_s + row.upload_s
            tally.add(row, book.took_s.get(row.round, own_s))
    outcomes = [str(task["outcome"]) for task in book.tasks.values()]
    extra = {
        "live": True,
        "devices": len(state.names),
        "uploads_applied": state.applied,
        "uploads_late": outcomes.count("late"),
        "tasks_given_up": sum(outcome.startswith("given up") for outcome in outcomes),
        "rounds_given_up": state.progress.given_up,
        "uploads_clipped": sum(outcome.startswith("given up: refused: share") for outcome in outcomes),
        "refusals": sum(book.refused.values()),
        "model_version": state.version,
        "quarantined": [name for name in state.members if state.is_quarantined(name)],
    }
    if not state.started or state.round == 0:
        return extra
    means = tally.summary(
        virtual_time_s=max(book.end_s - book.start_s, 0.0),
        rounds=state.round,
        trained=_trained(state, book),
        total_queue=state.coordinator.total_queue_at_the_end(),
        timeout=state.config.run.sync_timeout_s is not None,
    )
    evaluated = {}
    if book.evaluations:
        evaluated = {"test_loss": book.evaluations[-1].test_loss, "test_accuracy": book.evaluations[-1].test_accuracy}
    return {**described(means), **evaluated, **extra}


def _trained(state: State, book: Book) -> list[float]:
    """Samples of every device, once for each of its tasks that was mixed in; the first dispatches are counted in no mean."""
    trained: Counter[int] = Counter()
    for token, task in book.tasks.items():
        if task["round"] > 0 and task["outcome"] in MIXED_IN:
            trained[task["device"]] += book.trained(token)
    return [float(trained[device]) for device in range(len(state.twin.devices))]


def read_tasks(folder: Path) -> pa.Table:
    """Every task of a live run, its prediction beside what was measured."""
    return pq.read_table(folder / TASKS_NAME)
