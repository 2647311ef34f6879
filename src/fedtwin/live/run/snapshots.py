"""Snapshots of a live run: its whole state after so many lines, so that a resume reads no more than the last segment.

The replay of all lines gives the same. A snapshot that is damaged, or of another fedtwin, is not used: the one before is, or
the ledger from its beginning.
"""

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedtwin import __version__
from fedtwin.live.logs import say
from fedtwin.live.run.model import digest_of
from fedtwin.live.run.trail import Kept
from fedtwin.live.wire.ports import Disk
from fedtwin.live.wire.real import DISK

KEPT_SNAPSHOTS = 2
_PREFIX, _SUFFIX = "snapshot-", ".json"
_KEPT: TypeAdapter[Kept] = TypeAdapter(Kept)


@dataclass(frozen=True)
class Taken:
    """What a snapshot holds: the state after ``kept.lines`` lines, the last of which has these ``digits``."""

    digits: str
    kept: Kept
    state: dict[str, Any]


def write_snapshot(folder: Path, taken: Taken, *, fsync: bool, disk: Disk = DISK) -> None:
    """Whole or not at all; only the last few stay."""
    data = {"package_version": __version__, "digits": taken.digits, "kept": _KEPT.dump_python(taken.kept, mode="json")}
    body = json.dumps({**data, "state": taken.state}, separators=(",", ":")).encode()
    disk.write_whole(_path(folder, taken.kept.lines), digest_of(body).encode() + b"\n" + body, fsync=fsync)
    for path in snapshots_in(folder)[KEPT_SNAPSHOTS:]:
        with suppress(OSError):
            disk.remove(path)


def snapshots_in(folder: Path) -> list[Path]:
    """The newest first."""
    return sorted(folder.glob(f"{_PREFIX}{'[0-9]' * 12}{_SUFFIX}"), reverse=True)


def lines_of(snapshot: Path) -> int:
    """After how many it was taken, by its name."""
    digits = snapshot.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return int(digits) if digits.isdecimal() else 0


def read_snapshot(path: Path) -> Taken | None:
    """None, and a line in the log, where it cannot be used."""
    why = "it is damaged"
    try:
        digest, _, body = path.read_bytes().partition(b"\n")
        if digest == digest_of(body).encode():
            data = json.loads(body)
            if data["package_version"] == __version__:
                return Taken(data["digits"], _KEPT.validate_python(data["kept"]), data["state"])
            why = f"it was taken by fedtwin {data['package_version']}"
    except OSError as error:
        why = str(error.strerror)
    except (ValueError, LookupError, TypeError, ValidationError):
        pass
    say(logging.WARNING, "a snapshot is not used", snapshot=path.name, reason=why)
    return None


def _path(folder: Path, lines: int) -> Path:
    return folder / f"{_PREFIX}{lines:012d}{_SUFFIX}"
