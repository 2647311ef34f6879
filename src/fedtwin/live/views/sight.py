"""What a run looks like at a moment, as plain facts: of the run, and of every device. Times are on the run's clock.

They are made from the state and from what its last events said, wherever these are read: in the edge server, which puts them
into the twin's bucket, or from a ledger. ``status.py`` makes of them what a person sees.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fedtwin.live.logs import printable
from fedtwin.live.run import chain, events
from fedtwin.live.run.core import Core
from fedtwin.live.run.events import EVENT, Event
from fedtwin.live.run.ledger import first_lines, segment_path
from fedtwin.live.views.advice import Advice
from fedtwin.live.views.reasons import Reasons, all_overdue
from fedtwin.records.summary import judged_by
from fedtwin.twin import device_to_dict

MOST_RECENT, MOST_CHARACTERS = 50, 120
FLOOD = "flood"


class Seen(NamedTuple):
    """Of one device. ``why``: what it said when it last declined, or why its last task came to nothing.

    ``predicted`` and ``measured`` are of its last upload that was mixed in, before and after.
    """

    since_s: float | None = None
    uploaded_s: float | None = None
    why: str | None = None
    why_s: float | None = None
    predicted_s: float | None = None
    predicted_j: float | None = None
    measured_s: float | None = None
    measured_j: float | None = None


class LeftOut(NamedTuple):
    """``state``: quarantined, cut, drained or backed off; ``until_s`` is None where only a person ends it."""

    state: str
    reason: str
    until_s: float | None


class Sight:
    """Is told of all events; what happened before it was is seen from the state only."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._seen: dict[int, Seen] = {}
        self._sent: dict[int, events.Dispatched] = {}
        self._recent: deque[float] = deque(maxlen=MOST_RECENT)
        self._reasons, self._advice = Reasons(), Advice(core)
        self._measured: events.Measured | None = None
        self._still_since_s: float | None = None
        self._stopped = False

    def read_back(self, ledger: Path) -> None:
        """The last segment of a ledger that goes on here; a line that cannot be read is passed over."""
        firsts = first_lines(ledger)
        with suppress(OSError):
            for line in segment_path(ledger, firsts[-1]).read_bytes().split(b"\n")[:-1] if firsts else ():
                with suppress(ValidationError):
                    self.happened(EVENT.validate_json(chain.unsealed(line + b"\n")[0]))

    def happened(self, event: Event) -> None:
        self._reasons.happened(event)
        self._advice.happened(event)
        match event:
            case events.Started() | events.Resumed():
                self._still_since_s, self._stopped = event.at_s, False
            case events.Dispatched():
                self._sent[event.device] = event
                self._note(event.device, since_s=event.at_s)
            case events.Applied():
                self._applied(event)
            case events.Declined():
                self._note(event.device, why=_short(event.reason), why_s=event.at_s)
                if event.offline:
                    self._note(event.device, since_s=event.at_s)
            case events.GivenUp():
                why = _short(f"given up: {event.reason}")
                self._note(event.device, why=why, why_s=event.at_s, since_s=event.at_s)
            case events.StatusChanged():
                self._note(event.device, since_s=event.at_s)
            case events.Quarantined() | events.Released():
                if (device := self._core.number_of(event.name)) is not None:
                    self._note(device, since_s=event.at_s)
            case events.Measured():
                self._measured = event
            case events.Stopped():
                self._stopped = not event.finished
            case _:
                pass

    def _applied(self, event: events.Applied) -> None:
        self._reasons.clear()
        self._recent.append(event.at_s)
        self._still_since_s = event.at_s
        sent = self._sent.get(event.device)
        known = sent is not None and sent.token == event.token
        self._note(
            event.device,
            since_s=event.at_s,
            uploaded_s=event.at_s,
            predicted_s=sent.compute_s + sent.upload_s if known and sent else None,
            predicted_j=sent.compute_j + sent.upload_j if known and sent else None,
            measured_s=event.compute_s + event.upload_s,
            measured_j=event.compute_j + event.upload_j,
        )

    def _note(self, device: int, **facts: Any) -> None:
        self._seen[device] = self._seen.get(device, Seen())._replace(**facts)

    def seen(self, device: int) -> Seen:
        return self._seen.get(device, Seen())

    def left_out(self, device: int, now_s: float) -> LeftOut | None:
        """Why a device is not asked although it may be there."""
        core = self._core
        member = core.members[core.names[device]]
        if member.quarantined_until_s is not None:
            reason = member.quarantine_reason or ""
            state = "cut" if reason.partition(":")[0] == FLOOD else "quarantined"
            return LeftOut(state, _short(reason), member.quarantined_until_s)
        status = core.twin.devices[device].status
        if core.names[device] in core.drained and status != "in-flight":
            return LeftOut("drained", "until fedtwin admin release", None)
        if status != "offline" or not core.back_off.holds(device):
            return None
        until_s = core.held_back_until_s(device)
        return LeftOut("backed off", "its tasks came to nothing", until_s) if until_s > now_s else None

    def device(self, device: int, now_s: float) -> dict[str, Any]:
        """All that is known of one device: its twin, and what was seen of it."""
        known, left_out = self._core.twin.devices[device], self.left_out(device, now_s)
        seen = {**self.seen(device)._asdict(), "left_out": None if left_out is None else left_out._asdict()}
        return {**device_to_dict(known), "mean_cost": known.mean_cost, "seen": seen}

    def devices(self, now_s: float) -> Mapping[str, dict[str, Any]]:
        return {name: self.device(device, now_s) for device, name in enumerate(self._core.names)} if self._core.started else {}

    def run(self, now_s: float, wall_s: float | None = None, trouble: str | None = None) -> dict[str, Any]:
        """``trouble``: why no upload comes through the broker; ``wall_s``: when this was looked at, by the wall clock."""
        core, measured = self._core, self._measured
        advice = self._advice.told() if self._reasons else None
        overdue = all_overdue(core, now_s)
        return {
            "name": core.began.run if core.began is not None else None,
            "at_s": now_s,
            "wall_s": wall_s,
            "time_scale": core.live.time_scale,
            "policy": core.config.policy.name,
            "mode": core.config.run.mode,
            "started": core.started,
            "finished": core.finished,
            "stopped": self._stopped,
            "paused": core.paused,
            "ending": core.ending,
            "changed": dict(core.changed),
            "joined": len(core.members),
            "start_with": core.live.start_with or core.config.fleet.devices,
            "round": core.rounds_counted,
            "queue_round": core.queue_round,
            "rounds": core.config.run.rounds,
            "version": core.version,
            "uploads": core.applied,
            "in_flight": len(core.open),
            "energy_j": core.energy_j,
            "min_mean_samples": core.twin.min_mean_samples if core.started else 0.0,
            "recent_s": list(self._recent),
            "still_since_s": self._still_since_s,
            "warn_after_s": core.live.warn_after_s,
            "reasons": [*filter(None, [overdue]), *self._reasons.told(), *filter(None, [advice])],
            "trouble": trouble,
            "metric": None if measured is None else _metric(core, measured),
        }


def _metric(core: Core, measured: events.Measured) -> dict[str, Any]:
    value = measured.test_metric if measured.test_metric is not None else measured.test_accuracy
    return {
        "name": "loss" if value is None else judged_by(core.config).get("metric", "metric"),
        "value": measured.test_loss if value is None else value,
        "version": measured.version,
        "at_s": measured.at_s,
    }


def _short(words: str) -> str:
    return printable(words[:MOST_CHARACTERS])
