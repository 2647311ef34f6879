"""A synchronous round of a live run: who took it, what came of each, how long it took, and what everybody is charged for it."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from fedtwin.formulas.cost import cost
from fedtwin.formulas.terms import Terms
from fedtwin.formulas.timeout import computed_until_j, sent_until_j
from fedtwin.live.run import events

LEAST_COST_OF_NOTHING = 1.0


class Charge(NamedTuple):
    """What one selection of a round costs: the time is the round's, the energy its own."""

    cost: float
    compute_j: float
    upload_j: float

    @property
    def energy_j(self) -> float:
        return self.compute_j + self.upload_j


@dataclass
class Selection:
    """A device that took the round, and what came of its task; None while that is open."""

    sent: events.Dispatched
    ended: events.Applied | events.GivenUp | None = None

    @property
    def latency_s(self) -> float:
        """How long the round had to wait for it; for ever, where it was dropped."""
        match self.ended:
            case events.Applied():
                return self.ended.compute_s + self.ended.upload_s
            case events.GivenUp():
                return math.inf if self.ended.dropped else self.ended.at_s - self.sent.at_s
            case None:
                return math.inf

    def charge(self, terms: Terms, took_s: float) -> Charge:
        """An upload that did not come has cost what was spent until it was given up.

        Unless it was only too late, it is no cheaper than an update at both its limits: a device that fails at once is not.
        """
        if isinstance(self.ended, events.Applied):
            compute_j, upload_j = self.ended.compute_j, self.ended.upload_j
            return Charge(cost(terms, took_s, compute_j + upload_j), compute_j, upload_j)
        sent, until_s = self.sent, min(self.latency_s, took_s)
        compute_j = computed_until_j(until_s, sent.compute_s, sent.compute_j)
        upload_j = min(sent_until_j(until_s, sent.compute_s, sent.power_w), sent.upload_j)
        charged = cost(terms, took_s, compute_j + upload_j)
        only_late = self.ended is not None and self.ended.dropped
        return Charge(charged if only_late else max(charged, LEAST_COST_OF_NOTHING), compute_j, upload_j)


@dataclass
class Round:
    """The round that is open. ``total_queue`` is Σ Q_n as it opened; ``full``: nobody more is asked.

    ``selections`` are in the order of asking, whoever answered first.
    """

    opened: events.Opened
    total_queue: float = 0.0
    full: bool = False
    asked: list[int] = field(default_factory=list)
    selections: list[Selection] = field(default_factory=list)

    @property
    def uploads(self) -> list[events.Applied]:
        """Those in time, in the order in which their devices were asked."""
        return [one.ended for one in self.selections if isinstance(one.ended, events.Applied)]

    def take(self, event: events.Dispatched) -> None:
        """A device has taken the round."""
        self.selections.append(Selection(event))
        self.selections.sort(key=lambda one: self.asked.index(one.sent.device))

    def end(self, event: events.Applied | events.GivenUp) -> None:
        """What came of a task."""
        next(one for one in self.selections if one.sent.token == event.token).ended = event

    def is_over(self, at_s: float, empty_s: float) -> bool:
        """All uploads are in or given up; a round that nobody took lasts ``empty_s``."""
        if not self.full or any(one.ended is None for one in self.selections):
            return False
        return bool(self.selections) or at_s >= self.opened.at_s + empty_s

    def took_s(self, empty_s: float, timeout_s: float) -> float:
        """The latency of the slowest, or the timeout."""
        return min(max((one.latency_s for one in self.selections), default=empty_s), timeout_s)
