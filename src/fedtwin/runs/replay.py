"""A live run from its ledger: its state, its tables, and the twin it had after every event.

A moment is a number of events. For every device the index keeps the twins it went through, each with the moment it began at.

The ledger's clock begins with the edge server, that of the records with the run: a twin that is given out is by the records'.
"""

from bisect import bisect_right
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import NamedTuple

from fedtwin.config import Config
from fedtwin.live.run import events
from fedtwin.live.run.book import Book
from fedtwin.live.run.events import Event
from fedtwin.live.run.ledger import LedgerReader
from fedtwin.live.run.state import State
from fedtwin.policies import Knobs, Policy, View
from fedtwin.twin import DeviceTwin, Twin

FACTS = ("samples", "gain", "cpu_hz", "compute_s", "train_loss")


class Replay:
    """``read_on`` takes in what the ledger has more by now."""

    def __init__(self, config: Config, ledger: Path) -> None:
        self.state, self.book = State(config, NOBODY_CHOOSES), Book(config)
        self.rounds: dict[int, int] = {}
        self.clocks_s: list[float] = []
        self._asked: list[int] = []
        self._newest: list[int] = []
        self._reader = LedgerReader(ledger)
        self._queue_rounds: list[_QueueRound] = []
        self._drained: list[_Drained] = [_Drained(0, frozenset())]
        self._devices: list[_Life] = []
        self._fleet: list[_Fleet] = []

    @property
    def end_s(self) -> float:
        return self.clocks_s[-1]

    def read_on(self) -> list[Event]:
        """The events that are new."""
        found = []
        for event in self._reader.read():
            try:
                self._read(event)
            except (LookupError, ValueError, TypeError) as error:
                raise self._reader.impossible(event, error) from None
            found.append(event)
        return found

    def _read(self, event: Event) -> None:
        moment = len(self.clocks_s)
        if isinstance(event, events.Asked):
            if event.round not in self.rounds:
                self._asked.append(moment)
                self._newest.append(max(event.round, self._newest[-1] if self._newest else 0))
            self.rounds.setdefault(event.round, moment)
        before = self.state.twin if self.state.started else None
        self.state.apply(event)
        self.book.read(event)
        if self._drained[-1].names != (names := frozenset(self.state.drained)):
            self._drained.append(_Drained(moment + 1, names))
        if not self.state.started:
            self.clocks_s.append(-inf)
            return
        self.clocks_s.append(max(event.at_s - self.book.start_s, self.clocks_s[-1]))
        if isinstance(event, events.Started):
            self.rounds[0] = moment + 1
        if not self._queue_rounds or self._queue_rounds[-1].round != self.state.queue_round:
            self._queue_rounds.append(_QueueRound(moment + 1, self.state.queue_round))
        if self.state.twin is not before:
            self._note(moment + 1, self._changed_by(event, before))

    def _changed_by(self, event: Event, before: Twin | None) -> Iterable[int]:
        match event:
            case events.Started() | events.Changed():
                return range(len(self.state.twin.devices))
            case events.Told():
                return [heard.device for heard in event.facts]
            case events.Closed() if before is not None:
                pairs = zip(self.state.twin.devices, before.devices, strict=True)
                return [device for device, (now, then) in enumerate(pairs) if now is not then]
            case events.Joined() | events.Resized() | events.Quarantined() | events.Released():
                device = self.state.number_of(event.name)
                return () if device is None else (device,)
            case _:
                return (getattr(event, "device"),) if hasattr(event, "device") else ()  # noqa: B009

    def _note(self, moment: int, changed: Iterable[int]) -> None:
        twin = self.state.twin
        for device in changed:
            if device == len(self._devices):
                self._devices.append(_Life([], []))
            life = self._devices[device]
            life.moments.append(moment)
            life.twins.append(by_the_records(twin.devices[device], self.book.start_s))
        sums = twin.queue_sum, twin.queue_round_sum, twin.min_mean_samples
        self._fleet.append(_Fleet(moment, len(twin.devices), twin.model_version, *sums))

    # Moments

    def at_round(self, round_: int) -> int:
        """When the first device was about to be asked in it."""
        return self.rounds[round_]

    def at_seconds(self, seconds: float) -> int:
        """After all events up to the first that is later."""
        return bisect_right(self.clocks_s, seconds)

    def round_at(self, moment: int) -> int:
        """The newest round of which somebody had been asked, or was about to be."""
        place = bisect_right(self._asked, moment)
        return self._newest[place - 1] if place else 0

    def queue_round_at(self, moment: int) -> int:
        """The t of Q_n(t) after so many events."""
        return self._queue_rounds[bisect_right(self._queue_rounds, moment, key=lambda known: known.moment) - 1].round

    def drained_at(self, moment: int) -> frozenset[str]:
        """Who was given no task, by an order."""
        return self._drained[bisect_right(self._drained, moment, key=lambda known: known.moment) - 1].names

    def after(self, moment: int) -> Twin:
        """The twin after so many events."""
        fleet = self._fleet[bisect_right(self._fleet, moment, key=lambda known: known.moment) - 1]
        devices = (life.twins[bisect_right(life.moments, moment) - 1] for life in self._devices[: fleet.devices])
        return Twin(tuple(devices), fleet.min_mean_samples, fleet.model_version, fleet.queue_sum, fleet.queue_round_sum)


class _Life(NamedTuple):
    """The twins of one device, and the moments they began at."""

    moments: list[int]
    twins: list[DeviceTwin]


class _QueueRound(NamedTuple):
    """The t of Q_n(t), from a moment on."""

    moment: int
    round: int


class _Drained(NamedTuple):
    """Who is given no task, from a moment on."""

    moment: int
    names: frozenset[str]


class _Fleet(NamedTuple):
    """What a twin holds beside its devices, from a moment on."""

    moment: int
    devices: int
    model_version: int
    queue_sum: float
    queue_round_sum: int
    min_mean_samples: float


def by_the_records(device: DeviceTwin, start_s: float) -> DeviceTwin:
    """With the clock of the records, which began at ``start_s``; what was known before is known since then."""
    known = {name: fact for name in FACTS if (fact := getattr(device, name)) is not None}
    return device._replace(
        **{name: fact._replace(learned_s=max(fact.learned_s - start_s, 0.0)) for name, fact in known.items()}
    )


def _never(view: View, knobs: Knobs) -> float:
    raise AssertionError(f"a replay chooses nobody, not even device {view.device} ({knobs})")


NOBODY_CHOOSES = Policy(_never, power="max")
