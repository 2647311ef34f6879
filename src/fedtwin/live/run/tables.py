"""The records of a live run, made from its ledger: the same files as a simulation's, and every task beside its prediction."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedtwin.config import Config, identity_of
from fedtwin.errors import FedtwinError
from fedtwin.files import write_whole
from fedtwin.formulas.terms import Quantities
from fedtwin.learning.card import FILES, Which, with_card
from fedtwin.learning.evaluation import MEASURED
from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.book import Book
from fedtwin.live.run.core import Core
from fedtwin.live.run.keepsakes import card_for
from fedtwin.live.run.ledger import LEDGER_NAME
from fedtwin.live.run.model import LiveModel
from fedtwin.live.run.partial_book import PartialBook
from fedtwin.live.run.salvage import Salvage
from fedtwin.live.run.state import State
from fedtwin.records import DEVICES, Summary, Tally, rounds_schema, to_table
from fedtwin.records.arrays import table_of
from fedtwin.records.files import (
    DEVICES_NAME,
    EVALUATIONS_NAME,
    REFUSALS_NAME,
    ROUNDS_NAME,
    START_NAME,
    json_bytes,
    write_summary,
    write_table,
)
from fedtwin.records.schema import EVALUATIONS, REFUSALS
from fedtwin.records.summary import NO_ROUNDS, run_summary
from fedtwin.records.tasks import TASKS, TASKS_NAME

MODEL_NAME, PLAIN_NAME, SO_FAR_NAME = FILES["served"], FILES["plain"], "summary-so-far.json"
MIXED_IN, CLIPPED = ("applied", "late"), "given up: refused: share"


def write_records(folder: Path, core: Core, model: LiveModel) -> dict[str, Any]:
    """All tables of a run whose ledger has come to an end for now, and its summary; of what is left of the ledger, where not
    all of it is: that is ``incomplete`` in the summary then, and how many lines are damaged ``damaged_lines``. One that was
    stopped leaves its newest model too, and what a summary would hold, under another name: it is not finished.
    """
    config = core.given
    book, left, figure = PartialBook(config), Salvage(folder / LEDGER_NAME), None
    for event in left.events():
        if event is None:
            book.gap(core.state)
            continue
        book.read(event)
        if isinstance(event, events.Measured):
            figure = event
    if book.names != core.names:  # its lines were taken away just now
        book.gap(core.state)
    tables = tables_of(core.state, book)
    if config.learning is None:
        del tables[EVALUATIONS_NAME]
    if tables[REFUSALS_NAME].num_rows == 0:
        del tables[REFUSALS_NAME]
    summary = summary_of(core.state, book, lambda means: run_summary(config, means, identity_of(config, load_models=False)))
    if not book.whole:
        summary |= {"incomplete": _incomplete(left, book), "damaged_lines": left.lost}
    try:
        for name, table in tables.items():
            write_table(table, folder / name)
        write_newest(folder, core, model, figure)
        if core.finished:
            write_summary(folder, summary)
            (folder / SO_FAR_NAME).unlink(missing_ok=True)
        else:
            write_whole(folder / SO_FAR_NAME, json_bytes({**summary, "unfinished": True}))
    except OSError as error:
        why = f"{error.strerror}; resumed, the run writes them again"
        raise FedtwinError(f"The records cannot be written to {str(folder)!r}: {why}.") from None
    return summary


def write_newest(folder: Path, core: Core, model: LiveModel, measured: events.Measured | None = None) -> None:
    """The newest model; or ``OSError``."""
    for which, data in _described(model, folder, core, measured).items():
        write_whole(folder / FILES[which], data, fsync=core.live.fsync)


def newest_result(folder: Path) -> Path:
    """Which of the models in a folder is the newest that devices could download."""
    return folder / PLAIN_NAME if (folder / PLAIN_NAME).is_file() else folder / MODEL_NAME


def _described(model: LiveModel, folder: Path, core: Core, last: events.Measured | None) -> dict[Which, bytes]:
    """What is served, and what devices download where that is another model, each with its card, and what was measured, if that
    was of this version; as it is where nothing is known of it.
    """
    newest: dict[Which, bytes] = {"served": model.codec.encode(model.served)}
    if model.averages:
        newest["plain"] = model.encoded
    if core.config.learning is None or core.began is None:
        return newest
    figures: dict[Which, dict[str, float | None]] = {"served": {}, "plain": {}}
    if last is not None and last.version == core.version:
        metric = last.test_accuracy if last.test_metric is None else last.test_metric
        figures["served"] = {"test_loss": last.test_loss, "test_metric": metric}
        figures["plain"] = {"test_loss": last.plain_test_loss, "test_metric": last.plain_test_metric}
    try:
        card = card_for(core, folder)
    except FedtwinError as error:  # its own code is gone from the folder
        say(logging.WARNING, "the model does not say what it is", reason=str(error))
        return newest
    of_now = {"version": core.version, "round": core.round}
    return {which: with_card(data, card.of(which, **of_now, **figures[which])) for which, data in newest.items()}


def _incomplete(left: Salvage, book: Book) -> str:
    """What the tables are of, in a sentence."""
    rounds = sorted({row.round for row in book.in_order() if row.round > 0})
    there = f"the tables and means are of what is left, rounds {rounds[0]} to {rounds[-1]}" if rounds else "no round is left"
    moved = f"The ledger is there from line {left.moved + 1} on" if left.moved else None
    why = [one for one in (moved, left.damage) if one is not None] or ["The ledger is not there"]
    return f"{'; '.join(why)}: {there}."


def tables_of(state: State, book: Book) -> dict[str, pa.Table]:
    """Every table by the name of its file."""
    return tables_from(book, state.config, state.names, state.coordinator.ranks if state.started else ())


def tables_from(book: Book, config: Config, names: Sequence[str], ranks: Sequence[int]) -> dict[str, pa.Table]:
    """The same, by what it takes of the state: the settings, and the devices with what breaks their ties."""
    schema = rounds_schema(trace=False, learning=config.learning is not None, timeout=config.run.sync_timeout_s is not None)
    rows = book.in_order()
    return {
        START_NAME: to_table([row for row in rows if row.round == 0], schema),
        ROUNDS_NAME: to_table([row for row in rows if row.round > 0], schema),
        TASKS_NAME: pa.Table.from_pylist(book.all_tasks(), schema=TASKS),
        DEVICES_NAME: _devices(book, names, ranks),
        EVALUATIONS_NAME: table_of(book.evaluations, EVALUATIONS),
        REFUSALS_NAME: table_of(book.refusals, REFUSALS),
    }


def _devices(book: Book, names: Sequence[str], ranks: Sequence[int]) -> pa.Table:
    count = len(names)
    own = [book.own(device) for device in range(count)]
    columns: dict[str, list[Any]] = {
        "device": list(range(count)),
        "distance_m": [math.nan] * count,
        "path_gain": [math.nan] * count,
        "cpu_hz_mean": [book.cpu_hz.get(device, math.nan) for device in range(count)],
        "samples": [book.joined[name].samples for name in names],
        **{name: [of_device[name] for of_device in own] for name in (*Quantities._fields, "samples_spread")},
        "tie_rank": list(ranks),
    }
    table = pa.table({field.name: pa.array(columns[field.name], type=field.type) for field in DEVICES})
    return table.append_column("name", pa.array(list(names), type=pa.string()))


def summary_of(state: State, book: Book, described: Callable[[Summary], dict[str, Any]]) -> dict[str, Any]:
    """What has come of the run so far; ``described`` says what the means are the means of."""
    tally = Tally()
    for row in book.in_order():
        if row.round > 0:
            own_s = 0.0 if row.compute_s is None or row.upload_s is None else row.compute_s + row.upload_s
            tally.add(row, book.took_s.get(row.round, own_s))
    tasks = list(book.all_tasks())
    outcomes = [str(task["outcome"]) for task in tasks]
    clipped = Counter(task["name"] for task in tasks if str(task["outcome"]).startswith(CLIPPED))
    extra = {
        "live": True,
        "devices": len(state.names),
        "uploads_applied": state.applied,
        "uploads_late": outcomes.count("late"),
        "tasks_given_up": sum(outcome.startswith("given up") for outcome in outcomes),
        "rounds_given_up": state.progress.given_up,
        "uploads_clipped": clipped.total(),
        "clipped": dict(clipped),
        "backed_off": state.backed_off,
        "quarantines": state.quarantines,
        "refusals": sum(book.refused.values()),
        "model_version": state.version,
        "limits": _limits(state),
        "drained": state.drained,
        "changed": state.changed,
        "ended_by": _ended_by(state),
        "quarantined": [name for name in state.members if state.is_quarantined(name)],
    }
    if not state.started or state.round == 0:
        return {**described(NO_ROUNDS), **extra} if state.finished else extra
    means = tally.summary(
        virtual_time_s=max(book.end_s - book.start_s, 0.0),
        rounds=book.rounds_in_it(state.round),
        trained=_trained(state, book),
        total_queue=state.coordinator.total_queue_at_the_end(),
        timeout=state.config.run.sync_timeout_s is not None,
    )
    evaluated = {}
    if book.evaluations:
        last = book.evaluations[-1]
        measured = {name: getattr(last, name) for name in MEASURED}
        evaluated = {name: value for name, value in measured.items() if value is not None}
    return {**described(means), **evaluated, **extra}


def _ended_by(state: State) -> str | None:
    """Which rule ended the run; None while it may go on."""
    if not state.finished:
        return None
    if state.ending is not None:
        return state.ending
    rounds = f"run.rounds = {state.config.run.rounds}"
    return f"nothing in a row: {rounds} tasks and rounds" if state.is_barren else rounds


def _limits(state: State) -> dict[str, float] | None:
    """Those that were taken from the fleet, and from how many boards."""
    if state.limits is None:
        return None
    return state.limits.model_dump(include={*(state.live.limits_from_fleet or []), "devices"})


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
