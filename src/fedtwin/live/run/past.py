"""What the folder of a run gives back when it is opened again: its settings, and all that has happened."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fedtwin import __version__
from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file
from fedtwin.live.logs import say
from fedtwin.live.run.events import Began, Event
from fedtwin.live.run.ledger import LEDGER_NAME, DamageError, LedgerReader, first_lines, place_after, segment_path
from fedtwin.live.run.snapshots import read_snapshot, snapshots_in
from fedtwin.live.run.state import State
from fedtwin.live.run.trail import Kept
from fedtwin.records.files import CONFIG_NAME

REPAIR = "fedtwin edge --resume {} --repair"


@dataclass
class Past:
    """The state so far, the files that belong to it, and the reader of what comes after."""

    state: State
    reader: LedgerReader
    kept: Kept = field(default_factory=Kept)

    def replay(self, then: Callable[[Event], None] = lambda _: None) -> None:
        """All that has happened since, in order; ``DamageError`` at what was not written so, or cannot be."""
        for event in self.reader.read():
            try:
                self.state.apply(event)
            except (LookupError, ValueError, TypeError, AssertionError) as error:
                raise self.reader.impossible(event, error) from None
            self.kept.happened(event)
            then(event)


def pasts_of(folder: Path, config: Config) -> Iterator[Past]:
    """From every snapshot that can be used, the newest first, and at last from the beginning."""
    ledger = folder / LEDGER_NAME
    for path in snapshots_in(folder):
        taken = read_snapshot(path)
        if taken is None:
            continue
        try:
            state = State.restore(config, taken.state)
        except FedtwinError as error:
            say(logging.WARNING, "a snapshot is not used", snapshot=path.name, reason=str(error))
            continue
        line, digits = taken.kept.lines, taken.digits
        place = place_after(ledger, line, digits)
        if place is None:
            say(logging.WARNING, "a snapshot is not used", snapshot=path.name, reason="the ledger does not lead to it")
            continue
        yield Past(state, LedgerReader(ledger, line=line, digits=digits, place=place), taken.kept)
    yield Past(State(config), LedgerReader(ledger))


def beginning_of(folder: Path) -> Began:
    """The first event of a run that can be gone on with; from a snapshot, where the first segment was moved away or damaged."""
    reader = LedgerReader(folder / LEDGER_NAME)
    try:
        began = next(reader.read(), None)
    except DamageError:
        for taken in map(read_snapshot, snapshots_in(folder)):
            if taken is not None:
                return Began.model_validate(taken.state["began"])
        raise
    if not isinstance(began, Began):
        raise FedtwinError(f"{str(folder)!r} cannot be resumed: the first line of its ledger is not there.")
    if reader.digits is None:
        raise FedtwinError(
            f"{str(folder)!r} cannot be resumed: the lines of its ledger are not chained by checksums, as they were not at "
            f"first; it {_what_can_be_done(began)}."
        )
    return began


def has_ledger(folder: Path) -> bool:
    """One with a line: who follows a ledger may have been killed before its first one was whole."""
    ledger = folder / LEDGER_NAME
    return any(_has_a_line(segment_path(ledger, first)) for first in first_lines(ledger))


def _has_a_line(segment: Path) -> bool:
    try:
        with plain_file(segment).open("rb") as file:
            return file.readline().endswith(b"\n")
    except OSError:  # whoever reads it will say so
        return True


def settings_of(folder: Path, began: Began) -> Config:
    """Those the run was begun with; what has changed since is a sentence, and so is how it is put back."""
    path, cure = folder / CONFIG_NAME, ""
    if began.config is not None and settings_text(path) != began.config:
        cure = f"; {REPAIR.format(folder)} puts config.toml back as it was"
    try:
        config = load_config(path)
    except FedtwinError as error:
        raise FedtwinError(f"{str(folder)!r} cannot be resumed: {str(error).rstrip('.')}{cure}.") from None
    if began.config_hash != config_hash(config, load_models=False):
        if began.config is not None and not cure:
            raise FedtwinError(
                f"{str(folder)!r} cannot be resumed: config.toml is as it was, but a file or code it names has changed, or "
                f"this fedtwin ({__version__}) has other settings than who began the run; it {_what_can_be_done(began)}."
            )
        raise FedtwinError(
            f"{str(folder)!r} cannot be resumed: config.toml, or a file or code it names, has changed since the run "
            f"began{cure}."
        )
    return config


def _what_can_be_done(began: Began) -> str:
    return f"can be read (fedtwin.open_run), or gone on with by the fedtwin that began it ({began.package_version})"


def settings_text(path: Path) -> str | None:
    """None where there is none that can be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
