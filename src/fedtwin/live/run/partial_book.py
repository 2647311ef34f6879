"""The tables of a ledger of which lines are missing: every row that is in them is as it would be in the whole ones."""

from typing import Any

from fedtwin.config import Config
from fedtwin.live.run import events
from fedtwin.live.run.book import ROUNDS_GO_ON, Book
from fedtwin.live.run.events import Event
from fedtwin.live.run.facts import Facts
from fedtwin.records import Row

UNKNOWN = "unknown"


class PartialBook(Book):
    """A row or a task of which something may be missing is left out. From the first gap on what follows from earlier rows is
    empty: whose upload opened the round (``arrived``, ``staleness``, ``train_loss``), and what the twin knew (``twin_s``, …).
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.whole = True
        self._unsettled: set[str] = set()
        self._cut_rounds: set[int] = set()

    def gap(self, state: Facts) -> None:
        """Lines are missing here. Who is in the run is known from its ``state`` at the end."""
        self.whole = False
        self.names, self.start_s = list(state.names), state.started_s or 0.0
        self.joined = {name: member.joined for name, member in state.members.items()}
        self._changed = dict(state.changed)
        self._use(state.config)
        if self._current is not None:
            self._cut_rounds.add(self._round)
        self._current = None
        self._asked.clear()
        self._news.clear()
        self._news_of.clear()
        self.cpu_hz.clear()
        for token, task in self.tasks.items():
            if task["outcome"] == "open":
                self._unsettled.add(token)
                task["outcome"] = UNKNOWN
            elif task["outcome"].startswith("given up") and not _came_to_nothing(token, state):
                task["outcome"] = UNKNOWN

    def read(self, event: Event) -> None:
        if self.whole:
            super().read(event)
            return
        between = self._sync and self._current is None
        match event:
            case events.Joined() | events.Started():
                return
            case events.Asked() | events.Closed() if between:
                return
            case events.Applied() | events.GivenUp():
                if event.token in self.tasks:
                    self._ended(event, between=between)
            case _:
                super().read(event)
        if isinstance(event, ROUNDS_GO_ON):
            self.end_s = max(self.end_s, event.at_s)

    def _ended(self, event: events.Applied | events.GivenUp, *, between: bool) -> None:
        if isinstance(event, events.GivenUp):
            if between:
                self._note(event.token, outcome=f"given up: {event.reason}", ended_s=event.at_s - self.start_s)
            else:
                self._give_up(event)
        else:
            if self._current is not None:
                self._current.end(event)
            self._end(event)
            if event.late:  # what it was charged stood in the line that gave it up
                return
            self._settle(event.token, event)
        self._unsettled.discard(event.token)

    def in_order(self) -> list[Row]:
        if self.whole:
            return super().in_order()
        unsettled = {self._row_of[token] for token in self._unsettled}
        left = [place for place in self._places_in_order() if place not in unsettled]
        return [self.rows[place] for place in left if self.rows[place].round not in self._cut_rounds]

    def rounds_in_it(self, played: int) -> int:
        return played if self.whole else max(len({row.round for row in self.in_order() if row.round > 0}), 1)

    def all_tasks(self) -> list[dict[str, Any]]:
        return [task for task in super().all_tasks() if task["outcome"] != UNKNOWN]

    def _task(self, sent: events.Dispatched) -> dict[str, Any]:
        task = super()._task(sent)
        return task if self.whole else {**task, "twin_s": None, "twin_j": None, "twin_cost": None}


def _came_to_nothing(token: str, state: Facts) -> bool:
    """It was given up, and no late upload of it was mixed in since."""
    return token in state.given_up or state.closed.get(token, "applied") != "applied"
