"""What a live run's events say that its twin does not: who is drained or in quarantine, and which settings were changed."""

from bisect import bisect_right
from typing import Any, NamedTuple

from fedtwin.runs import News
from fedtwin.service.names import EDGE


class Quarantine(NamedTuple):
    """Of one device, since when on the clock of the records."""

    since_s: float
    reason: str


class LedgerFacts:
    """Is told of all events, in order."""

    def __init__(self) -> None:
        self.quarantined: dict[str, Quarantine] = {}
        self.changed: list[tuple[int, str, Any]] = []
        self.paused = False
        self.names: list[str] = []
        self.evaluations: list[dict[str, Any]] = []
        self.refusals: list[dict[str, Any]] = []
        self.evaluated_at: list[int] = []
        self.refused_at: list[int] = []
        """The revisions that these came with: an evaluation is of a model that stood earlier."""
        self.run_name: str | None = None
        self._digests: list[tuple[int, str]] = []
        self._events, self._start_s = 0, 0.0

    def happened(self, news: News) -> None:
        from fedtwin.live.run import events

        self.evaluations += news.evaluations.to_pylist()
        self.refusals += news.refusals.to_pylist()
        for event in news.events:
            self._events += 1
            if isinstance(event, events.Began):
                self.run_name = event.run
            match event:
                case events.Started():
                    self._start_s, self.names = event.at_s, []
                    for name in event.names:
                        self._name(name)
                case events.Joined() if self.names:
                    self._name(event.name)
                case events.Quarantined():
                    self.quarantined[event.name] = Quarantine(max(event.at_s - self._start_s, 0.0), event.reason)
                case events.Released():
                    self.quarantined.pop(event.name, None)
                case events.Steered():
                    self.paused = event.command == "pause" or (self.paused and event.command != "resume")
                case events.Measured():
                    self.evaluated_at.append(self._events)
                case events.Refused():
                    self.refused_at.append(self._events)
                case events.Changed():
                    self.changed.append((self._events, event.setting, event.value))
                case events.Began() | events.Applied() | events.Closed() if event.model_sha256 is not None:
                    self._digests.append((self._events, event.model_sha256))
                case _:
                    pass

    def _name(self, name: str) -> None:
        """Devices have numbers in this order. The edge server's own name stays its own: no device of today has it, and none
        can be called as one of before is then.
        """
        self.names.append(f"{EDGE}~" if name == EDGE else name)

    def digest_at(self, revision: int) -> str | None:
        """Of the file that the newest version of the model was written to."""
        place = bisect_right(self._digests, revision, key=lambda known: known[0])
        return self._digests[place - 1][1] if place else None

    def changed_at(self, revision: int) -> dict[str, Any]:
        return {setting: value for since, setting, value in self.changed if since <= revision}
