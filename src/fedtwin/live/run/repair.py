"""A damaged run goes back to the last state that verifies. Nothing is deleted: what is cut off is moved aside.

What is to be done is written down first (``repair.json``), whole; then it is done. Killed in between, it is done when the run
is opened again, and what comes of it is the same.
"""

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file, write_whole
from fedtwin.learning.card import without_card
from fedtwin.live.logs import say
from fedtwin.live.run import chain, events
from fedtwin.live.run.going_on import is_finished_for_good
from fedtwin.live.run.ledger import LEDGER_NAME, cut_torn_line, first_lines, segment_path
from fedtwin.live.run.model import MODELS, model_path
from fedtwin.live.run.past import beginning_of, settings_of, settings_text
from fedtwin.live.run.snapshots import lines_of, snapshots_in
from fedtwin.live.run.survey import FINISHED, Intact, rest_of, survey
from fedtwin.live.run.tables import MODEL_NAME, PLAIN_NAME, newest_result
from fedtwin.records.checksums import SUMS_NAME
from fedtwin.records.files import BESIDE_A_SUMMARY, CONFIG_NAME, LOCK_NAME, SUMMARY_NAME
from fedtwin.records.lock import Lock

PLAN_NAME = "repair.json"


class Plan(BaseModel):
    """``segment`` ends at ``place``, and then has the line of ``event``; what was cut off, and the ``moves``, go to ``folder``.
    ``settings`` are those of ``config.toml``; the file ``copied`` is the result of the run once more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    folder: str
    moves: list[str] = []
    event: events.Repaired | None = None
    segment: str = LEDGER_NAME
    place: int = 0
    line: str = ""
    settings: str | None = None
    copied: str | None = None


def repair(folder: Path, lock: Lock | None = None) -> events.Repaired | None:
    """Goes back to the last state that verifies; None where nothing was lost.

    ``lock``: the folder's, where it is held already.
    """
    held = lock or Lock(folder / LOCK_NAME)
    try:
        done = _finished(folder)
        cut_torn_line(folder / LEDGER_NAME)
        began = beginning_of(folder)
        if began.config is not None and settings_text(folder / CONFIG_NAME) != began.config:
            moves = [CONFIG_NAME] if (folder / CONFIG_NAME).exists() else []
            _begin(folder, Plan(folder=_new_name(folder), moves=moves, settings=began.config))
            say(logging.WARNING, "config.toml is put back as it was when the run began")
        found = survey(folder, settings_of(folder, began))
        plan = _plan(folder, found)
        if plan is None and done is None:
            say(logging.INFO, "there was nothing to repair", folder=folder)
        return _begin(folder, plan) or done if plan is not None else done
    except OSError as error:
        raise FedtwinError(f"{str(folder)!r} cannot be repaired: {error.strerror}.") from None
    finally:
        if lock is None:
            held.release()


def go_on_with_repair(folder: Path, lock: Lock | None = None) -> events.Repaired | None:
    """One that was begun, and killed, is finished."""
    if not (folder / PLAN_NAME).exists():
        return None
    held = lock or Lock(folder / LOCK_NAME)
    try:
        return _finished(folder)
    except OSError as error:
        raise FedtwinError(f"{str(folder)!r} cannot be repaired: {error.strerror}.") from None
    finally:
        if lock is None:
            held.release()


def _plan(folder: Path, found: Intact | None) -> Plan | None:
    """None where there is nothing to do. A run that is finished, and has its records, is never opened again for it."""
    whole = is_finished_for_good(folder)
    if whole and (found is None or not found.finished):
        raise FedtwinError(f"{str(folder)!r} is damaged; {FINISHED}. (To go back all the same, move {SUMMARY_NAME} away.)")
    if found is None:
        raise FedtwinError(f"{str(folder)!r} cannot be repaired: no model is left that the ledger leads to.")
    ledger, name = folder / LEDGER_NAME, _new_name(folder)
    later = [segment_path(ledger, first).name for first in first_lines(ledger) if first > found.line + 1]
    moves = [one for one in later if one != found.segment.name]
    moves += [path.name for path in snapshots_in(folder) if lines_of(path) > found.line or not path.is_file()]
    moves += [f"{MODELS}/{file}" for file in found.wrong]
    if not whole:
        records = (SUMMARY_NAME,) if found.finished else (SUMMARY_NAME, MODEL_NAME, PLAIN_NAME)
        moves += [record for record in records if (folder / record).exists()]
        moves += [record for record in (*BESIDE_A_SUMMARY, SUMS_NAME) if (folder / record).is_dir()]
    copied = f"{MODELS}/{model_path(Path(), found.version).name}" if found.copied else None
    if found.segment.is_dir():
        moves.append(found.segment.name)
    if not found.finished and ((folder / SUMMARY_NAME).exists() or b'"finished":true' in rest_of(found)):
        say(logging.WARNING, "the run was finished, and is open again: its end cannot be verified", version=found.version)
    if not (found.lines_lost or found.uploads_lost or later or found.segment.is_dir()):
        return Plan(folder=name, moves=moves, copied=copied) if moves or copied else None
    event = events.Repaired(
        at_s=found.at_s, version=found.version, lines=found.lines_lost, uploads=found.uploads_lost, folder=name
    )
    line, _ = chain.sealed(event.model_dump_json(exclude_none=True).encode(), found.digits)
    return Plan(
        folder=name,
        moves=moves,
        event=event,
        segment=found.segment.name,
        place=found.place,
        line=line.decode(),
        copied=copied,
    )


def _begin(folder: Path, plan: Plan) -> events.Repaired | None:
    write_whole(folder / PLAN_NAME, plan.model_dump_json())
    return _finished(folder)


def _finished(folder: Path) -> events.Repaired | None:
    """What was planned is done; whatever of it was done before stays as it is."""
    path = folder / PLAN_NAME
    if not path.exists():
        return None
    try:
        plan = Plan.model_validate_json(plain_file(path).read_bytes())
    except ValidationError:
        raise FedtwinError(f"{str(path)!r} is damaged: remove it, and repair the run again.") from None
    aside, segment = folder / plan.folder, folder / plan.segment
    if plan.event is not None and segment.is_file():
        rest = segment.read_bytes()[plan.place :]
        if rest not in (b"", plan.line.encode()):
            aside.mkdir(exist_ok=True)
            write_whole(aside / segment.name, rest)
    for name in plan.moves:
        _move(folder / name, aside)
    if plan.copied is not None:
        result = newest_result(aside if {MODEL_NAME, PLAIN_NAME} & set(plan.moves) else folder)
        write_whole(folder / plan.copied, without_card(result.read_bytes()))
    if plan.event is not None:
        write_whole(segment, (segment.read_bytes()[: plan.place] if plan.place else b"") + plan.line.encode())
    if plan.settings is not None:
        write_whole(folder / CONFIG_NAME, plan.settings)
    path.unlink()
    if plan.event is None and plan.settings is None:
        moved = ", ".join(plan.moves) or None
        say(logging.WARNING, "repaired, and nothing was lost", put_back=plan.copied, moved=moved, kept_in=plan.folder)
    return plan.event


def _move(path: Path, aside: Path) -> None:
    """Once: what stands in its place by now is new."""
    if path.exists() and not (aside / path.name).exists():
        aside.mkdir(exist_ok=True)
        path.rename(aside / path.name)


def _new_name(folder: Path) -> str:
    """``damaged-1``, ``damaged-2``, …: for what is cut off."""
    number = 1
    while (folder / f"damaged-{number}").exists():
        number += 1
    return f"damaged-{number}"
