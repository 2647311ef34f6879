"""What the folder of a run gives back when it is opened again: its settings, and its events one after the other."""

from collections.abc import Callable
from pathlib import Path

from fedtwin.config import Config, config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.live.run.events import Began, Event
from fedtwin.live.run.ledger import LEDGER_NAME, LedgerReader
from fedtwin.records.files import CONFIG_NAME

REPAIR = "fedtwin edge --resume {} --repair"


def replay(reader: LedgerReader, apply: Callable[[Event], None]) -> None:
    """All that has happened, in order; ``DamageError`` at what was not written so, or cannot be."""
    for event in reader.read():
        try:
            apply(event)
        except (LookupError, ValueError, TypeError, AssertionError) as error:
            raise reader.impossible(event, error) from None


def beginning_of(folder: Path) -> Began:
    """The first line of a run that can be gone on with."""
    reader = LedgerReader(folder / LEDGER_NAME)
    began = next(reader.read(), None)
    if not isinstance(began, Began):
        raise FedtwinError(f"{str(folder)!r} cannot be resumed: the ledger is empty, the run never began; remove the folder.")
    if reader.digits is None:
        raise FedtwinError(
            f"{str(folder)!r} cannot be resumed: the lines of its ledger are not chained by checksums, as they were not at "
            f"first; it can still be read."
        )
    return began


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
        raise FedtwinError(
            f"{str(folder)!r} cannot be resumed: config.toml, or a file or code it names, has changed since the run "
            f"began{cure}."
        )
    return config


def settings_text(path: Path) -> str | None:
    """None where there is none that can be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
