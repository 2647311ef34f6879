"""How the state of the aggregation is had back after a kill: from the last file it was written to, or the state a run begins
with, and the uploads since. The ledger names all these files, so that no model is ever written twice for the rule's sake.
"""

from dataclasses import dataclass, field, replace

from fedtwin.live.run import events
from fedtwin.live.run.ledger import SEGMENT_LINES

MARK_EVERY, MARKS_APART = 16, 2


@dataclass(frozen=True)
class Trail:
    """The state after ``version`` uploads is in a file, or (``state`` is None) the one that a run would begin with from the
    model of that version; ``since`` are the uploads after it: of a synchronous run those of the round that is open, which are
    mixed in when that is closed.
    """

    version: int = 0
    state: events.KeptState | None = None
    since: tuple[events.Applied, ...] = ()

    def after(self, event: events.Event) -> "Trail":
        """The trail when this has happened too."""
        if isinstance(event, events.Changed):
            return self if event.state is None else Trail(event.version, event.state)
        if isinstance(event, events.Closed):
            return Trail(event.version, event.state)
        if not isinstance(event, events.Applied):
            return self
        if event.upload is not None:
            return replace(self, since=(*self.since, event))
        return Trail(event.version, event.state)

    @property
    def files(self) -> set[str]:
        """What must be there beside the models."""
        kept = [*(event.upload for event in self.since), self.state]
        return {one.file for one in kept if one is not None}

    def versions(self, *, starts: bool) -> set[int]:
        """The models that must be there; with ``starts`` also those that uploads were trained from."""
        if not self.since:
            return set()
        uploads = [event.upload for event in self.since if event.upload is not None]
        return {self.version, *(upload.start for upload in uploads if starts)}


@dataclass(frozen=True)
class Anchor:
    """A state that can be gone back to: all its files stay."""

    version: int = 0
    trail: Trail = field(default_factory=Trail)


@dataclass
class Kept:
    """Which files the ledger says were written, with the digests of the models, and which of them stay.

    What gave the state back before the last upload stays, in case the ledger's last line is lost with the power. Further back
    there are the last two anchors, the run's beginning and every ``SEGMENT_LINES`` lines, in case what is newer is damaged; and
    since the older of them the marks, the wider apart the older they are.
    """

    lines: int = 0
    version: int = 0
    models: dict[int, str] = field(default_factory=dict)
    before: Trail = field(default_factory=Trail)
    trail: Trail = field(default_factory=Trail)
    anchors: tuple[Anchor, Anchor] = field(default_factory=lambda: (Anchor(), Anchor()))
    marks: tuple[Anchor, ...] = ()

    def happened(self, event: events.Event) -> None:
        self.lines += 1
        if isinstance(event, events.Applied | events.Closed):
            self.before, self.trail = self.trail, self.trail.after(event)
            self.version = event.version
            if not self.trail.since and self.version >= self._last_mark + MARK_EVERY:
                self._mark()
        if isinstance(event, events.Changed) and event.state is not None:
            self.before, self.trail = self.trail, self.trail.after(event)
        if isinstance(event, events.Began | events.Applied | events.Closed) and event.model_sha256 is not None:
            self.models[self.version] = event.model_sha256
        if self.segment_is_full:
            self.anchors = self.anchors[1], Anchor(self.version, self.trail)

    @property
    def _last_mark(self) -> int:
        return self.marks[-1].version if self.marks else 0

    def _mark(self) -> None:
        """Another one, with no file but the model and at most one of the state; of those before as many go as can.

        From one mark to the next it is no further than twice the way from there to the newest version, or than the next that
        could be one. So going back to before a damage loses three times as many versions as came after it, and a few.
        """
        marks = [mark for mark in self.marks if mark.version > self.anchors[0].version]
        marks.append(Anchor(self.version, self.trail))
        versions = [self.anchors[0].version, *(mark.version for mark in marks)]
        place = 1
        while place < len(versions) - 1:
            following = versions[place + 1]
            if following - versions[place - 1] <= MARKS_APART * (self.version - following):
                del versions[place], marks[place - 1]
            else:
                place += 1
        self.marks = tuple(marks)

    @property
    def segment_is_full(self) -> bool:
        """The next line is the first of a new segment."""
        return self.lines % SEGMENT_LINES == 0

    @property
    def files(self) -> set[str]:
        """What must stay beside the models."""
        return set().union(*(trail.files for trail in self._trails))

    def versions(self, *, starts: bool) -> set[int]:
        """The models that must stay; with ``starts`` also those that uploads were trained from."""
        newest = {self.version, self.version - 1, *(state.version for state in self.states)}
        return newest.union(*(trail.versions(starts=starts) for trail in self._trails))

    def forget_all_but(self, versions: set[int]) -> None:
        """Their files are gone."""
        self.models = {version: digest for version, digest in self.models.items() if version in versions}

    @property
    def _trails(self) -> tuple[Trail, ...]:
        return self.before, self.trail, *(state.trail for state in self.states)

    @property
    def states(self) -> tuple[Anchor, ...]:
        """All that can be gone back to."""
        return *self.anchors, *self.marks
