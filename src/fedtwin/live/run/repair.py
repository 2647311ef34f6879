"""What is left of a damaged run, and how it goes back to the last state that verifies. Nothing is deleted."""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.files import write_whole
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.live.logs import say
from fedtwin.live.run import chain, events
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import LEDGER_NAME, DamageError, LedgerReader, cut_torn_line
from fedtwin.live.run.model import MODELS, digest_of, model_path
from fedtwin.live.run.past import REPAIR, beginning_of, replay, settings_of, settings_text
from fedtwin.live.run.state import State
from fedtwin.live.run.trail import Kept, Trail
from fedtwin.records.files import CONFIG_NAME, LOCK_NAME
from fedtwin.records.lock import Lock


@dataclass(frozen=True)
class Intact:
    """The last state that verifies: after so many lines, which are so many bytes; and what comes after it, to be cut off."""

    line: int = 0
    place: int = 0
    digits: str = ""
    version: int = 0
    at_s: float = 0.0
    files: frozenset[str] = frozenset()
    lines_lost: int = 0
    uploads_lost: int = 0


def survey(folder: Path, config: Config) -> Intact | None:
    """None where no state verifies: of all models the ledger leads to none is left."""
    path = folder / LEDGER_NAME
    state, kept, reader, found = State(config), Kept(), LedgerReader(path), None
    there = {file.name: digest_of(file.read_bytes()) for file in (folder / MODELS).glob("*.safetensors")}
    starts = aggregation_of(config).needs_start
    needed: dict[str, str | None] = {}

    def apply(event: Event) -> None:
        nonlocal found, needed
        state.apply(event)
        kept.happened(event)
        if isinstance(event, events.Began | events.Applied | events.Closed):
            needed = _files_of(kept, starts=starts)
        if all(there.get(name) == digest for name, digest in needed.items()):
            found = Intact(reader.line, reader.place, reader.digits or "", kept.version, state.last_at_s, frozenset(needed))

    try:
        replay(reader, apply)
    except DamageError:
        pass
    if found is None:
        return None
    with path.open("rb") as file:
        file.seek(found.place)
        rest = file.read()
    lost = {"lines_lost": rest.count(b"\n"), "uploads_lost": rest.count(b'"kind":"applied"')}
    return Intact(**{**vars(found), **lost})


def _files_of(kept: Kept, *, starts: bool) -> dict[str, str | None]:
    """What the state as it is now is had back from, with the digests that the ledger has."""
    trail: Trail = kept.trail
    versions = {kept.version} | trail.versions(starts=starts)
    files: dict[str, str | None] = {model_path(Path(), version).name: kept.models.get(version) for version in versions}
    uploads = [event.upload for event in trail.since if event.upload is not None]
    files |= {upload.file: upload.sha256 for upload in uploads}
    return files if trail.state is None else {**files, trail.state.file: trail.state.sha256}


def told(error: DamageError, folder: Path, config: Config) -> DamageError:
    """The same with what is intact, and what a repair would lose."""
    found, what = survey(folder, config), str(error).rstrip(".")
    if found is None:
        return DamageError(f"{what}; nothing is intact that the run could go back to.")
    return DamageError(
        f"{what}; intact are lines 1 to {found.line} of the ledger, to version {found.version} of the model at {found.at_s:.1f} "
        f"s: {REPAIR.format(folder)} goes back there, and {_lost(found.lines_lost, found.uploads_lost)} lost."
    )


def _lost(lines: int, uploads: int) -> str:
    return f"{lines} line{'s' * (lines != 1)} with {uploads} upload{'s' * (uploads != 1)} {'is' if lines == 1 else 'are'}"


def repair(folder: Path) -> events.Repaired | None:
    """Goes back to the last state that verifies; None where nothing was damaged.

    What is cut off is copied aside first, then the ledger is replaced in one step: whenever this is killed, it can be done
    again.
    """
    lock = Lock(folder / LOCK_NAME)
    try:
        path = folder / LEDGER_NAME
        cut_torn_line(path)
        began = beginning_of(folder)
        if began.config is not None and settings_text(folder / CONFIG_NAME) != began.config:
            _put_settings_back(folder, began.config)
        found = survey(folder, settings_of(folder, began))
        if found is None:
            raise FedtwinError(f"{str(folder)!r} cannot be repaired: no model is left that the ledger leads to.")
        if found.lines_lost == 0:
            return None
        aside = _new_folder(folder)
        whole = path.read_bytes()
        write_whole(aside / LEDGER_NAME, whole[found.place :])
        for file in (folder / MODELS).glob("*.safetensors"):
            if file.name not in found.files:
                shutil.copy2(file, aside / file.name)
        event = events.Repaired(
            at_s=found.at_s,
            reason=f"damage after line {found.line}",
            version=found.version,
            lines=found.lines_lost,
            uploads=found.uploads_lost,
            folder=aside.name,
        )
        line, _ = chain.sealed(event.model_dump_json(exclude_none=True).encode(), found.digits)
        write_whole(path, whole[: found.place] + line)
        return event
    except OSError as error:
        raise FedtwinError(f"{str(folder)!r} cannot be repaired: {error.strerror}.") from None
    finally:
        lock.release()


def _put_settings_back(folder: Path, text: str) -> None:
    path = folder / CONFIG_NAME
    if path.exists():
        shutil.copy2(path, _new_folder(folder) / CONFIG_NAME)
    write_whole(path, text)
    say(logging.WARNING, "config.toml is put back as it was when the run began")


def _new_folder(folder: Path) -> Path:
    """``damaged-1``, ``damaged-2``, …: for what is cut off."""
    number = 1 + sum(1 for _ in folder.glob("damaged-*"))
    while (folder / f"damaged-{number}").exists():
        number += 1
    made = folder / f"damaged-{number}"
    made.mkdir()
    return made
