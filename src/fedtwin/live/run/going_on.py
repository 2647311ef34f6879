"""Whether a run whose ledger was read can go on: nothing is missing at its end, it speaks our protocol, and is not finished."""

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from fedtwin import __version__
from fedtwin.errors import FedtwinError
from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.facts import Facts
from fedtwin.live.run.ledger import LEDGER_NAME, DamageError
from fedtwin.live.run.model import MODELS
from fedtwin.live.run.past import REPAIR
from fedtwin.live.run.stream_ledger import MOST_AT_ONCE
from fedtwin.live.wire.protocol import PROTOCOL_VERSION
from fedtwin.records.checksums import SUMS_NAME, names_written, require_as_written
from fedtwin.records.files import SUMMARY_NAME


def check_nothing_is_missing_at_the_end(folder: Path, state: Facts) -> None:
    """A summary is written after the last line of all."""
    names, ends = [path.name for path in (folder / MODELS).iterdir()], f"{str(folder / LEDGER_NAME)!r} ends with"
    version, uploads = newest_of(names), newest_of(names, "upload")
    if version > most_versions(state):
        raise DamageError(f"{ends} version {state.version} of the model, and version {version} is on disk: its end is missing")
    if uploads > most_uploads(state):
        raise DamageError(f"{ends} upload {state.applied}, and upload {uploads} is on disk: its end is missing")
    if not state.finished and (folder / SUMMARY_NAME).exists():
        raise DamageError(f"{ends} a run that is not finished, and {SUMMARY_NAME} is there: its end is missing")


def most_versions(state: Facts) -> int:
    """The newest that can be on disk: a model is before its line is, that of a synchronous round once all uploads are in."""
    current = state.current
    closing = current is not None and current.full and all(one.ended is not None for one in current.selections)
    return state.version + (closing or not state.sync or at_the_broker(state))


def most_uploads(state: Facts) -> int:
    """The last that can be on disk: an upload is, before its line is; those of many lines, where they go to the broker."""
    return state.applied + (MOST_AT_ONCE if at_the_broker(state) else 1)


def at_the_broker(state: Facts) -> bool:
    return state.live.ledger == "stream"


def newest_of(names: Iterable[str], kind: str = "model") -> int:
    """The newest version among the files of models, or the last of the uploads."""
    digits = [name.removeprefix(f"{kind}-").removesuffix(".safetensors") for name in names if name.startswith(f"{kind}-")]
    return max((int(one) for one in digits if one.isdecimal()), default=0)


def check_it_can_go_on(state: Facts, folder: Path, began: events.Began) -> None:
    """That another fedtwin began it is said."""
    if began.protocol != PROTOCOL_VERSION:
        raise FedtwinError(
            f"{str(folder)!r} cannot be resumed: the run speaks protocol {began.protocol}, this is {PROTOCOL_VERSION}."
        )
    if state.finished and (folder / SUMMARY_NAME).exists():
        if (why := what_is_wrong_with_the_records(folder)) is not None:
            raise FedtwinError(
                f"{str(folder)!r} is finished, and {why.rstrip('.')}: {REPAIR.format(folder)} writes its records anew."
            )
        if not is_incomplete(folder):
            raise FedtwinError(f"{str(folder)!r} cannot be resumed: this run is finished, there is nothing to resume.")
    if began.package_version != __version__:
        say(
            logging.WARNING, "the run was begun by another version of fedtwin", begun_by=began.package_version, this=__version__
        )


def what_is_wrong_with_the_records(folder: Path) -> str | None:
    """None where a finished run has all of them as they were written."""
    names = names_written(folder)
    if SUMMARY_NAME not in names:
        return f"{SUMS_NAME} says nothing of {SUMMARY_NAME}"
    try:
        require_as_written(folder, *sorted(names))
    except FedtwinError as error:
        return str(error)
    return None


def is_incomplete(folder: Path) -> bool:
    """The records of a finished run were made of a part of its ledger."""
    return "incomplete" in json.loads((folder / SUMMARY_NAME).read_text(encoding="utf-8"))


def is_finished_for_good(folder: Path) -> bool:
    """All records of a finished run are there: it has no need to go on, whatever has become of its ledger."""
    return (folder / SUMMARY_NAME).exists() and what_is_wrong_with_the_records(folder) is None
