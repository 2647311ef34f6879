"""What is left of a damaged run: the last state that verifies, and what would be lost by going back there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fedtwin.config import Config
from fedtwin.files import plain_file
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.learning.card import without_card
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.going_on import is_finished_for_good, most_uploads, most_versions, newest_of
from fedtwin.live.run.ledger import LEDGER_NAME, DamageError, first_lines, segment_path
from fedtwin.live.run.model import MODELS, digest_of, model_path
from fedtwin.live.run.past import REPAIR, Past, pasts_of
from fedtwin.live.run.tables import newest_result
from fedtwin.live.run.trail import Kept

FINISHED = "the run is finished, and its records are as they were written: there is nothing to resume"


@dataclass(frozen=True)
class Intact:
    """The last state that verifies: after ``line`` lines, at this place of this segment; and what comes after it.

    ``newest`` are the last version and upload that can be on disk. ``wrong``: files of ``models/`` that cannot belong to it as
    they are. ``copied``: its newest model is only there as the result of the run.
    """

    line: int
    segment: Path
    place: int
    digits: str
    version: int
    uploads: int
    newest: tuple[int, int]
    at_s: float
    finished: bool
    copied: bool = False
    wrong: tuple[str, ...] = ()
    lines_lost: int = 0
    uploads_lost: int = 0


def survey(folder: Path, config: Config) -> Intact | None:
    """None where no state verifies: of all models the ledger leads to none is left."""
    there = {file.name: _digest(file) for file in (folder / MODELS).glob("*.safetensors")}
    result = _digest(newest_result(folder), without_card)
    starts = aggregation_of(config).needs_start
    for past in pasts_of(folder, config):
        found = _last_that_verifies(past, there, result, starts=starts)
        if found is not None:
            found = _with_what_is_lost(folder, _at_a_segments_beginning(folder, found), set(there))
            return replace(found, wrong=tuple(sorted(_wrong(found, there, past.kept))))
    return None


def _digest(file: Path, part: Callable[[bytes], bytes] = bytes) -> str | None:
    """None of what is no file, or cannot be read."""
    try:
        return digest_of(part(plain_file(file).read_bytes()))
    except OSError:
        return None


def _last_that_verifies(past: Past, there: dict[str, str | None], result: str | None, *, starts: bool) -> Intact | None:
    reader, found = past.reader, None
    needed = files_of(past.kept, starts=starts)

    def look(event: Event | None = None) -> None:
        nonlocal found, needed
        if isinstance(event, events.Began | events.Applied | events.Closed | events.Changed):
            needed = files_of(past.kept, starts=starts)
        model = model_path(Path(), past.kept.version).name
        bad = [name for name, digest in needed.items() if there.get(name) != digest or digest is None]
        if reader.line > 0 and (not bad or (bad == [model] and needed[model] == result)):
            place = reader.line, reader.segment, reader.place, reader.digits or ""
            state, newest = past.state, (most_versions(past.state), most_uploads(past.state))
            found = Intact(*place, past.kept.version, state.applied, newest, state.last_at_s, state.finished, copied=bool(bad))

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


def _wrong(found: Intact, there: dict[str, str | None], kept: Kept) -> Iterable[str]:
    """What is newer, what is no file, and models that are not what the ledger says; what else is older may be gone back to."""
    known = {model_path(Path(), version).name: digest for version, digest in kept.models.items()}
    version, uploads = (found.version, found.uploads) if found.lines_lost else found.newest
    for name, digest in there.items():
        newer = newest_of([name]) > version or newest_of([name], "upload") > uploads
        if newer or digest is None or known.get(name, digest) != digest:
            yield name


def _at_a_segments_beginning(folder: Path, found: Intact) -> Intact:
    """Whoever reads from a snapshot begins in the segment after it, if there is one."""
    following = segment_path(folder / LEDGER_NAME, found.line + 1)
    return replace(found, segment=following, place=0) if following.exists() else found


def _with_what_is_lost(folder: Path, found: Intact, there: set[str]) -> Intact:
    ledger = folder / LEDGER_NAME
    later = [segment_path(ledger, first) for first in first_lines(ledger) if first > found.line + 1]
    rest = b"".join([rest_of(found), *(path.read_bytes() for path in later if path != found.segment and path.is_file())])
    beyond = [newest_of(there) - found.version] if newest_of(there) > found.newest[0] else []
    beyond += [newest_of(there, "upload") - found.uploads] if newest_of(there, "upload") > found.newest[1] else []
    uploads = max(rest.count(b'"kind":"applied"'), *beyond, 0)
    return replace(found, lines_lost=rest.count(b"\n"), uploads_lost=uploads)


def rest_of(found: Intact) -> bytes:
    """What comes after it in its segment."""
    return found.segment.read_bytes()[found.place :] if found.segment.is_file() else b""


def told(error: DamageError, folder: Path, config: Config) -> DamageError:
    """The same with what is intact, and what a repair would lose."""
    what = str(error).rstrip(".")
    if is_finished_for_good(folder):
        return DamageError(f"{what}; {FINISHED}.")
    found = survey(folder, config)
    if found is None:
        return DamageError(f"{what}; nothing is intact that the run could go back to.")
    return DamageError(
        f"{what}; intact are lines 1 to {found.line} of the ledger, to version {found.version} of the model at "
        f"{found.at_s:.1f} s: {REPAIR.format(folder)} goes back there, and {_lost(found.lines_lost, found.uploads_lost)} lost."
    )


def _lost(lines: int, uploads: int) -> str:
    return f"{lines} line{'s' * (lines != 1)} with {uploads} upload{'s' * (uploads != 1)} {'is' if lines == 1 else 'are'}"
