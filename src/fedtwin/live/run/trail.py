"""How the state of the aggregation is had back after a kill: from the last file it was written to, or the state a run begins
with, and the uploads since. The ledger names all these files, so that no model is ever written twice for the rule's sake.
"""

from dataclasses import dataclass, replace

from fedtwin.live.run import events


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
