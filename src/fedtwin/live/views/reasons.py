"""Why uploads came to nothing: declines, tasks given up and refusals, counted; tasks that nothing was heard of."""

from collections import Counter

from fedtwin.live.logs import printable
from fedtwin.live.run import events
from fedtwin.live.run.core import Core
from fedtwin.live.run.events import Event

MOST_KINDS, MOST_TOLD, MOST_CHARACTERS = 100, 8, 80
OTHERS = "other reasons"


class Reasons(Counter[str]):
    """Partly words of devices: cut, and no more kinds than can be kept."""

    def happened(self, event: Event) -> None:
        match event:
            case events.Declined():
                self._add(f"declined: {event.reason}")
            case events.GivenUp():
                self._add(f"given up: {event.reason}")
            case events.Refused():
                self._add(f"refused: {event.reason.partition(':')[0]}")
            case _:
                pass

    def told(self) -> list[str]:
        """The most frequent ones, each with its count."""
        return [f"{reason} ({count})" for reason, count in self.most_common(MOST_TOLD)]

    def _add(self, reason: str) -> None:
        reason = printable(reason[:MOST_CHARACTERS])
        self[reason if reason in self or len(self) < MOST_KINDS else OTHERS] += 1


def all_overdue(core: Core, now_s: float) -> str | None:
    """Nothing that is in flight comes any more; one task within its deadline is a long training, and no standstill."""
    if not core.open or len(overdue := core.overdue(now_s)) < len(core.open):
        return None
    return f"the deadlines of all {len(overdue)} tasks have passed, and none was mixed in or given up"
