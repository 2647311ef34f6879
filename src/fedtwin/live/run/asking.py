"""Who is being asked for which round. A question is open until it is answered; to all others the device is busy meanwhile."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedtwin.live.run import events


@dataclass
class Asking:
    """The open questions by device, and the rounds of an asynchronous run that nobody has taken yet, with who was asked in it.

    Such a round holds a channel; its number is t, and the next device is asked in the same one. ``first``: who may still be
    asked at the start (round 0), in the order of ``places``. ``waiting``: a channel was offered to all who are free, and is
    offered again when something has changed.
    """

    places: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    rounds: dict[int, list[int]] = field(default_factory=dict)
    questions: dict[int, events.Asked] = field(default_factory=dict)
    waiting: bool = False

    @property
    def held(self) -> int:
        """Channels that somebody is asked for, or will be."""
        return len(self.rounds) + sum(asked.round == 0 for asked in self.questions.values())

    @property
    def round_to_go_on(self) -> int | None:
        """The oldest round in which nobody is being asked at the moment."""
        busy = {asked.round for asked in self.questions.values()}
        return next((round_ for round_ in self.rounds if round_ not in busy), None)

    def opened(self, round_: int) -> None:
        self.rounds[round_], self.first, self.waiting = [], [], False

    def asked(self, event: events.Asked) -> None:
        self.questions[event.device] = event
        if event.round > 0:
            self.rounds[event.round].append(event.device)
            return
        self.first.remove(event.device)
        if not self.first:  # the channels left over wait for the first arrival
            self.waiting = True

    def answered(self, device: int) -> events.Asked | None:
        """The question it was; None where nobody waits for an answer any more."""
        return self.questions.pop(device, None)

    def taken(self, round_: int) -> None:
        self.rounds.pop(round_, None)

    def passed(self, round_: int, free: Iterable[int]) -> None:
        """Nobody took it. Who is free and was not asked has taken a later round: there is one for it at once."""
        asked = self.rounds.pop(round_, [])
        self.first, self.waiting = [], round_ == 0 or set(free) <= set(asked)
