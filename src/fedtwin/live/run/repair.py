"""How a damaged run goes back to the last state that verifies. Nothing is deleted: what is cut off is moved aside."""

import logging
import shutil
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.files import write_whole
from fedtwin.live.logs import say
from fedtwin.live.run import chain, events
from fedtwin.live.run.ledger import LEDGER_NAME, cut_torn_line, first_lines, segment_path
from fedtwin.live.run.model import MODELS
from fedtwin.live.run.past import beginning_of, settings_of, settings_text
from fedtwin.live.run.snapshots import lines_of, snapshots_in
from fedtwin.live.run.survey import Intact, rest_of, survey
from fedtwin.records.files import CONFIG_NAME, LOCK_NAME
from fedtwin.records.lock import Lock


def repair(folder: Path) -> events.Repaired | None:
    """Goes back to the last state that verifies; None where nothing was damaged. Killed in between, it can be done again."""
    lock = Lock(folder / LOCK_NAME)
    try:
        cut_torn_line(folder / LEDGER_NAME)
        began = beginning_of(folder)
        if began.config is not None and settings_text(folder / CONFIG_NAME) != began.config:
            _put_settings_back(folder, began.config)
        found = survey(folder, settings_of(folder, began))
        if found is None:
            raise FedtwinError(f"{str(folder)!r} cannot be repaired: no model is left that the ledger leads to.")
        return _cut_off(folder, found) if found.lines_lost or found.uploads_lost else None
    except OSError as error:
        raise FedtwinError(f"{str(folder)!r} cannot be repaired: {error.strerror}.") from None
    finally:
        lock.release()


def _cut_off(folder: Path, found: Intact) -> events.Repaired:
    """All that goes is copied aside first; the ledger ends at the last state with one step, the rest goes after it."""
    aside = _new_folder(folder)
    if rest := rest_of(found):
        write_whole(aside / found.segment.name, rest)
    ledger = folder / LEDGER_NAME
    segments = [segment_path(ledger, first) for first in first_lines(ledger) if first > found.line + 1]
    gone = [path for path in segments if path != found.segment]
    gone += [path for path in snapshots_in(folder) if lines_of(path) > found.line]
    gone += [path for path in (folder / MODELS).glob("*.safetensors") if path.name not in found.files]
    for path in gone:
        shutil.copy2(path, aside / path.name)
    event = events.Repaired(
        at_s=found.at_s,
        version=found.version,
        lines=found.lines_lost,
        uploads=found.uploads_lost,
        folder=aside.name,
    )
    line, _ = chain.sealed(event.model_dump_json(exclude_none=True).encode(), found.digits)
    before = found.segment.read_bytes()[: found.place] if found.place else b""
    for path in segments:
        if path != found.segment:
            path.unlink()
    write_whole(found.segment, before + line)
    for path in gone:
        path.unlink(missing_ok=True)
    return event


def _put_settings_back(folder: Path, text: str) -> None:
    path = folder / CONFIG_NAME
    if path.exists():
        shutil.copy2(path, _new_folder(folder) / CONFIG_NAME)
    write_whole(path, text)
    say(logging.WARNING, "config.toml is put back as it was when the run began")


def _new_folder(folder: Path) -> Path:
    """``damaged-1``, ``damaged-2``, …: for what is cut off."""
    number = 1
    while (folder / f"damaged-{number}").exists():
        number += 1
    made = folder / f"damaged-{number}"
    made.mkdir()
    return made
