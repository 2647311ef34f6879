"""What is left of a damaged run: the last state that verifies, and what would be lost by going back there."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fedtwin.config import Config
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import LEDGER_NAME, DamageError, first_lines, segment_path
from fedtwin.live.run.model import MODELS, digest_of, model_path
from fedtwin.live.run.past import REPAIR, Past, pasts_of
from fedtwin.live.run.snapshots import lines_of, snapshots_in
from fedtwin.live.run.trail import Kept


@dataclass(frozen=True)
class Intact:
    """The last state that verifies: after ``line`` lines, at this place of this segment; and what comes after it."""

    line: int
    segment: Path
    place: int
    digits: str
    version: int
    at_s: float
    files: frozenset[str]
    lines_lost: int = 0
    uploads_lost: int = 0


def survey(folder: Path, config: Config) -> Intact | None:
    """None where no state verifies: of all models the ledger leads to none is left."""
    there = {file.name: digest_of(file.read_bytes()) for file in (folder / MODELS).glob("*.safetensors")}
    starts = aggregation_of(config).needs_start
    for past in pasts_of(folder, config):
        found = _last_that_verifies(past, there, starts=starts)
        if found is not None:
            return _with_what_is_lost(folder, _at_a_segments_beginning(folder, found), there)
    return None


def _last_that_verifies(past: Past, there: dict[str, str], *, starts: bool) -> Intact | None:
    reader, found = past.reader, None
    needed = files_of(past.kept, starts=starts)

    def look(event: Event | None = None) -> None:
        nonlocal found, needed
        if isinstance(event, events.Began | events.Applied | events.Closed):
            needed = files_of(past.kept, starts=starts)
        if reader.line > 0 and all(there.get(name) == digest for name, digest in needed.items()):
            place = reader.line, reader.segment, reader.place, reader.digits or ""
            found = Intact(*place, past.kept.version, past.state.last_at_s, frozenset(needed))

    try:
        look()
        past.replay(look)
    except DamageError:
        pass
    return found


def files_of(kept: Kept, *, starts: bool) -> dict[str, str | None]:
    """What the state as it is now is had back from, with the digests that the ledger has."""
    trail = kept.trail
    versions = {kept.version} | trail.versions(starts=starts)
    files: dict[str, str | None] = {model_path(Path(), version).name: kept.models.get(version) for version in versions}
    uploads = [event.upload for event in trail.since if event.upload is not None]
    files |= {upload.file: upload.sha256 for upload in uploads}
    return files if trail.state is None else {**files, trail.state.file: trail.state.sha256}


def _at_a_segments_beginning(folder: Path, found: Intact) -> Intact:
    """Whoever reads from a snapshot begins in the segment after it."""
    following = segment_path(folder / LEDGER_NAME, found.line + 1)
    if following.exists() or found.line in map(lines_of, snapshots_in(folder)):
        return replace(found, segment=following, place=0)
    return found


def _with_what_is_lost(folder: Path, found: Intact, there: Iterable[str]) -> Intact:
    ledger = folder / LEDGER_NAME
    later = [segment_path(ledger, first) for first in first_lines(ledger) if first > found.line + 1]
    rest = b"".join([rest_of(found), *(path.read_bytes() for path in later if path != found.segment)])
    beyond = newest_of(there) - found.version
    uploads = max(rest.count(b'"kind":"applied"'), beyond if beyond > 1 else 0)
    return replace(found, lines_lost=rest.count(b"\n"), uploads_lost=uploads)


def rest_of(found: Intact) -> bytes:
    """What comes after it in its segment."""
    return found.segment.read_bytes()[found.place :] if found.segment.exists() else b""


def newest_of(names: Iterable[str]) -> int:
    """The newest version among the files of models."""
    digits = [name.removeprefix("model-").removesuffix(".safetensors") for name in names if name.startswith("model-")]
    return max((int(one) for one in digits if one.isdecimal()), default=0)


def told(error: DamageError, folder: Path, config: Config) -> DamageError:
    """The same with what is intact, and what a repair would lose."""
    found, what = survey(folder, config), str(error).rstrip(".")
    if found is None:
        return DamageError(f"{what}; nothing is intact that the run could go back to.")
    return DamageError(
        f"{what}; intact are lines 1 to {found.line} of the ledger, to version {found.version} of the model at "
        f"{found.at_s:.1f} s: {REPAIR.format(folder)} goes back there, and {_lost(found.lines_lost, found.uploads_lost)} lost."
    )


def _lost(lines: int, uploads: int) -> str:
    return f"{lines} line{'s' * (lines != 1)} with {uploads} upload{'s' * (uploads != 1)} {'is' if lines == 1 else 'are'}"
