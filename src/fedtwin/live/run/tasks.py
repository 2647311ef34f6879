"""The tasks of a live run by their tokens: those in flight, those given up whose upload may still come, those that are over."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeVar

from fedtwin.live.run import events

Key = TypeVar("Key")
Value = TypeVar("Value")
REMEMBERED_TOKENS = 10_000
SUPERSEDED = "given up, and a newer one since"


@dataclass(frozen=True)
class OpenTask:
    """A task in flight, or given up: who has it, from which model, and what the device predicted.

    ``chosen``: another device could have been asked in its place.
    """

    sent: events.Dispatched
    changes: int
    chosen: bool = True


@dataclass
class Tasks:
    """A device has one task at most; a token is good for one upload."""

    open: dict[str, OpenTask] = field(default_factory=dict)
    given_up: OrderedDict[str, OpenTask] = field(default_factory=OrderedDict)
    closed: OrderedDict[str, str] = field(default_factory=OrderedDict)
    token_of: dict[int, str] = field(default_factory=dict)

    def of(self, device: int) -> OpenTask | None:
        token = self.token_of.get(device)
        return self.open[token] if token is not None else None

    def sent(self, event: events.Dispatched, changes: int, *, chosen: bool) -> None:
        self.open[event.token] = OpenTask(event, changes, chosen)
        self.token_of[event.device] = event.token

    def applied(self, event: events.Applied) -> None:
        if event.late:
            del self.given_up[event.token]
        else:
            del self.open[event.token], self.token_of[event.device]
        remember(self.closed, event.token, "applied")

    def given_up_by(self, event: events.GivenUp) -> OpenTask:
        """The task it was. The upload of a device in quarantine is not waited for; of any other only the newest can still be
        redeemed: nobody hoards tokens.
        """
        task = self.open.pop(event.token)
        del self.token_of[event.device]
        if event.status == "quarantined":
            remember(self.closed, event.token, "refused")
        else:
            for token in [old for old, one in self.given_up.items() if one.sent.device == event.device]:
                del self.given_up[token]
                remember(self.closed, token, SUPERSEDED)
            remember(self.given_up, event.token, task)
        return task


def remember(known: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    known[key] = value
    if len(known) > REMEMBERED_TOKENS:
        known.popitem(last=False)
