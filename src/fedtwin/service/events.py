"""What happens in a run, as server-sent events; a stream that was broken off goes on from the revision it had reached.

A stream keeps nothing: what has changed since a revision is the difference of two twins, so none can be missed.
"""

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncIterator
from typing import Any

from anyio import to_thread
from sse_starlette import ServerSentEvent

from fedtwin.errors import FedtwinError
from fedtwin.runs import Moment, Run
from fedtwin.service.fleet import at_a_glance, one
from fedtwin.service.moments import Seen, seen
from fedtwin.service.served import Served
from fedtwin.service.telling import UnansweredError, encoded, numbers

PAUSE_S = 0.1
REVISION = re.compile(r"[0-9]{1,16}")
MOST_PER_LOOK = 500


async def of_run(served: Served, last_id: str | None) -> AsyncIterator[ServerSentEvent]:
    """First what has changed since the last event that was heard, or everything; then whatever happens, until the end."""
    stand = _Listener(served, int(last_id) if last_id is not None and REVISION.fullmatch(last_id) else None)
    with served.bell.heard() as rung:
        while not served.closed:
            rung.clear()
            for event in await to_thread.run_sync(stand.next_events):
                yield event
            if stand.finished:
                return
            await asyncio.sleep(PAUSE_S)
            await rung.wait()


class _Listener:
    """How far one listener has heard."""

    def __init__(self, served: Served, revision: int | None) -> None:
        self._served, self._revision = served, revision
        self._version = -1
        self._evaluations: int | None = None
        self._refusals: int | None = None
        self.finished = False

    def next_events(self) -> list[ServerSentEvent]:
        try:
            with self._served.reading() as run:
                if self._version == self._served.version:
                    return []
                self._version = self._served.version
                return self._changes(run)
        except (UnansweredError, FedtwinError) as error:
            return [_event("trouble", {"error": str(error)})]

    def _changes(self, run: Run) -> list[ServerSentEvent]:
        now = seen(self._served)
        if now is None:
            return []
        before = self._before()
        since = None if before is None else before.moment
        events = [*self._new_evaluations(run, since), *self._new_refusals(run, since)]
        if before is None or before.moment != now.moment:
            changed = {
                str(device): one(now, device)
                for device in range(len(now.twin.devices))
                if before is None or _differs(before, now, device)
            }
            events.append(_event("state", {**at_a_glance(now), "changed": changed}, now.moment))
        self._revision = now.moment.revision
        if run.finished:
            self.finished = True
            events.append(_event("finished", {"revision": now.moment.revision, "seconds": now.moment.seconds}, now.moment))
        return events

    def _before(self) -> Seen | None:
        if self._revision is None:
            return None
        try:
            return seen(self._served, f"revision:{self._revision}")
        except (UnansweredError, FedtwinError):  # of another run, or of one whose end was lost
            return None

    def _new_evaluations(self, run: Run, since: Moment | None) -> list[ServerSentEvent]:
        every, facts = self._served.evaluations(), self._served.facts
        heard = _until(every, facts.evaluated_at, run, since) if self._evaluations is None else self._evaluations
        self._evaluations = len(every)
        return [_event("evaluation", _evaluation(row)) for row in every[heard:][-MOST_PER_LOOK:]]

    def _new_refusals(self, run: Run, since: Moment | None) -> list[ServerSentEvent]:
        every, names, facts = self._served.refusals(), self._served.names(), self._served.facts
        heard = _until(every, facts.refused_at, run, since) if self._refusals is None else self._refusals
        self._refusals = len(every)
        return [_event("refusal", {**row, "name": _name(names, row["device"])}) for row in every[heard:][-MOST_PER_LOOK:]]


def _until(rows: list[dict[str, Any]], came_with: list[int], run: Run, since: Moment | None) -> int:
    """How many were there at a moment. In a live run they came with a revision, later than the clock they are of."""
    if since is None:
        return 0
    return bisect_right(came_with, since.revision) if run.is_live else sum(row["clock_s"] <= since.seconds for row in rows)


def _differs(before: Seen, now: Seen, device: int) -> bool:
    """More than the growth of its queue, which the rounds tell."""
    if device >= len(before.twin.devices) or before.status(device) != now.status(device):
        return True
    return before.twin.devices[device] != now.twin.devices[device]


def _name(names: list[str], device: int) -> str | None:
    return names[device] if 0 <= device < len(names) else None


def _evaluation(row: dict[str, Any]) -> dict[str, Any]:
    metric = row["test_accuracy"] if row["test_metric"] is None else row["test_metric"]
    value, loss = numbers([metric, row["test_loss"]])
    return {"round": row["round"], "clock_s": row["clock_s"], "metric": value, "loss": loss}


def _event(kind: str, data: Any, moment: Moment | None = None) -> ServerSentEvent:
    return ServerSentEvent(data=encoded(data).decode(), event=kind, id=None if moment is None else str(moment.revision))
