"""The records of a live run, made from its ledger: the same files as a simulation's, and every task beside its prediction."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedtwin.config import identity_of
from fedtwin.files import write_whole
from fedtwin.live.run.core import Core
from fedtwin.live.run.history import History
from fedtwin.live.run.ledger import LEDGER_NAME, read_events
from fedtwin.live.run.live_run import MODELS
from fedtwin.live.run.model import model_path
from fedtwin.live.run.tasks import TASKS, TASKS_NAME
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

MODEL_NAME = "model.safetensors"


def write_records(folder: Path, core: Core) -> dict[str, Any]:
    """All tables of a run whose ledger has come to an end for now, and its summary."""
    config = core.config
    history = History(config, core.names)
    history.read(read_events(folder / LEDGER_NAME))
    schema = rounds_schema(trace=False, learning=config.learning is not None)
    write_table(to_table([row for row in history.rows if row.round == 0], schema), folder / START_NAME)
    rounds = [row for row in history.rows if row.round > 0]
    write_table(to_table(rounds, schema), folder / ROUNDS_NAME)
    write_table(pa.Table.from_pylist(list(history.tasks.rows.values()), schema=TASKS), folder / TASKS_NAME)
    write_table(_devices(core, history), folder / DEVICES_NAME)
    if config.learning is not None:
        write_table(table_of(history.evaluations, EVALUATIONS), folder / EVALUATIONS_NAME)
    if history.refusals:
        write_table(table_of(history.refusals, REFUSALS), folder / REFUSALS_NAME)
    summary = _summary(core, history, rounds)
    if core.finished:
        model = model_path(folder / MODELS, core.version)
        write_whole(folder / MODEL_NAME, model.read_bytes(), fsync=core.live.fsync)
        write_summary(folder, summary)
    return summary


def _devices(core: Core, history: History) -> pa.Table:
    count = len(core.names)
    columns = {
        "device": list(range(count)),
        "distance_m": [math.nan] * count,
        "path_gain": [math.nan] * count,
        "cpu_hz_mean": [history.cpu_hz.get(device, math.nan) for device in range(count)],
        "samples": [history.samples[name] for name in core.names],
        "tie_rank": core.tie_ranks if core.started else [],
    }
    table = pa.table({field.name: pa.array(columns[field.name], type=field.type) for field in DEVICES})
    return table.append_column("name", pa.array(core.names, type=pa.string()))


def _summary(core: Core, history: History, rounds: list[Row]) -> dict[str, Any]:
    tally = Tally()
    for row in rounds:
        tally.add(row, 0.0 if row.compute_s is None or row.upload_s is None else row.compute_s + row.upload_s)
    outcomes = [str(task["outcome"]) for task in history.tasks.rows.values()]
    extra = {
        "live": True,
        "devices": len(core.names),
        "uploads_applied": core.applied,
        "uploads_late": outcomes.count("late"),
        "tasks_given_up": sum(outcome.startswith("given up") for outcome in outcomes),
        "refusals": sum(history.refused.values()),
        "model_version": core.version,
        "quarantined": [name for name in core.members if core.is_quarantined(name)],
    }
    if not core.started or core.round == 0:
        return extra
    selections = [device.selections * device.samples.value for device in core.twin.devices]
    summary = tally.summary(
        virtual_time_s=core.last_at_s - history.start_s,
        rounds=core.round,
        trained=selections,
        total_queue=core.coordinator.total_queue_at_the_end(),
    )
    evaluated = {}
    if history.evaluations:
        evaluated = {"test_loss": history.evaluations[-1].test_loss, "test_accuracy": history.evaluations[-1].test_accuracy}
    return {**run_summary(core.config, summary, identity_of(core.config, load_models=False)), **evaluated, **extra}
