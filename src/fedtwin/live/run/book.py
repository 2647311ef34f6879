"""What the tables of a live run hold, from its events: every decision, every task beside its prediction, what was refused."""

import math
from collections import deque
from copy import copy
from typing import Any

from fedtwin.config import Config, LiveConfig
from fedtwin.formulas.cost import cost, within
from fedtwin.formulas.terms import Quantities, Terms, own_terms, terms_of
from fedtwin.learning.aggregation.refusals import Refusal
from fedtwin.learning.evaluation import Evaluation
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.limits import limits_of_board, set_limits
from fedtwin.live.run.round import Round
from fedtwin.live.run.settable import config_with
from fedtwin.records import Row

ROUNDS_GO_ON = (events.Asked, events.Declined, events.Passed, events.Dispatched, events.Applied, events.GivenUp, events.Closed)


class Book:
    """Reads events in order and keeps what the tables need."""

    def __init__(self, config: Config) -> None:
        self.names: list[str] = []
        self._given, self._changed = config, dict[str, bool | int | float]()
        self._use(config)
        self.limits: events.Limits | None = None
        self._sync = config.run.mode == "sync"
        self._current: Round | None = None
        self.took_s: dict[int, float] = {}
        self._news: deque[tuple[int, int, float | None]] = deque()
        self._news_of: dict[int, tuple[int, int, float | None]] = {}
        self._asked: dict[int, tuple[int, events.Asked]] = {}
        self._questions = 0
        self._question_of_row: list[int] = []
        self._row_of: dict[str, int] = {}
        self._sent: dict[str, events.Dispatched] = {}
        self.rows: list[Row] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self._sums: dict[int, tuple[int, float, float, float]] = {}
        self.start_s = self.end_s = 0.0
        self.evaluations: list[Evaluation] = []
        self._refusals: list[tuple[int, float, str, str]] = []
        self.refused: dict[tuple[str, str], int] = {}
        self.joined: dict[str, events.Joined] = {}
        self.cpu_hz: dict[int, float] = {}
        self._round = 0

    def _use(self, config: Config) -> None:
        """The settings of the rows from here on."""
        self._terms: Terms = terms_of(config)
        self._live = config.live or LiveConfig()

    @property
    def refusals(self) -> list[Refusal]:
        """Of strangers in device −1; who has joined by now is none."""
        number_of = {name: device for device, name in enumerate(self.names)}
        return [Refusal(round_, at_s, number_of.get(name, -1), reason) for round_, at_s, name, reason in self._refusals]

    def read(self, event: Event) -> None:
        if isinstance(event, ROUNDS_GO_ON):
            self.end_s = max(self.end_s, event.at_s)
        match event:
            case events.Joined():
                self.joined[event.name] = event
                if self.names:
                    self.names.append(event.name)
            case events.Limits():
                self.limits = event
            case events.Changed():
                self._changed[event.setting] = event.value
                self._use(config_with(self._given, self._changed))
            case events.Resized():
                self.joined[event.name] = self.joined[event.name].model_copy(update={"samples": event.samples})
            case events.Started():
                self.start_s, self.names = event.at_s, list(event.names)
            case events.Opened():
                self._open(event)
            case events.Closed():
                self._close(event)
            case events.Asked():
                self._ask(event)
            case events.Declined() if event.device in self._asked:
                gain, cpu_hz = event.gain or math.nan, event.cpu_hz or math.nan
                self._add(event, gain, cpu_hz, declined=event.reason)
            case events.Dispatched() if event.device in self._asked:
                self._row_of[event.token], self._sent[event.token] = len(self.rows), event
                self._add(event, event.gain, event.cpu_hz, sent=event)
                self._news_of.pop(event.round, None)
                self.cpu_hz[event.device] = event.cpu_hz
                self.tasks[event.token] = self._task(event)
                if self._current is not None:
                    self._current.take(event)
            case events.Applied():
                if not event.late:
                    self._settle(event.token, event)
                if self._current is not None:
                    self._current.end(event)
                else:
                    self._news.append((event.device, event.staleness, event.train_loss))
                self._end(event)
            case events.Passed():
                self._news_of.pop(event.round, None)
            case events.GivenUp():
                self._give_up(event)
            case events.Refused():
                key = event.name, event.reason.partition(":")[0]
                self.refused[key] = max(event.count, self.refused.get(key, 0))
                self._refusals.append((self._round, event.at_s - self.start_s, event.name, f"{event.what}: {event.reason}"))
            case events.Measured():
                stood_s = max(min(event.model_at_s, self.end_s) - self.start_s, 0.0)  # the last one waits for its worker
                metric = event.test_accuracy if event.test_metric is None else event.test_metric
                found = Evaluation(event.round, stood_s, event.energy_j, event.test_loss, event.test_accuracy)
                found = found._replace(plain_test_loss=event.plain_test_loss, plain_test_metric=event.plain_test_metric)
                self.evaluations.append(found._replace(test_metric=metric))
            case _:
                pass

    def at_rest(self) -> "Book":
        """As it stands: what is read from now on is not in it."""
        resting = copy(self)
        kept = {name: copy(value) for name, value in vars(self).items() if isinstance(value, list | dict | deque)}
        vars(resting).update(kept)
        return resting

    def in_order(self) -> list[Row]:
        """All rows by their rounds, and within one in the order of asking; ``rows`` are in the order of the answers."""
        return [self.rows[place] for place in self._places_in_order()]

    def rounds_in_it(self, played: int) -> int:
        """Of so many that were ``played``."""
        return played

    def all_tasks(self) -> list[dict[str, Any]]:
        """In the order in which they were handed out."""
        return list(self.tasks.values())

    def _places_in_order(self) -> list[int]:
        return sorted(range(len(self.rows)), key=lambda place: (self.rows[place].round, self._question_of_row[place]))

    def _open(self, event: events.Opened) -> None:
        """Every upload opens a round, in the order they come, and stands in all rows of it."""
        self._round = event.round
        if self._sync:
            self._current = Round(event)
        elif self._news:
            self._news_of[event.round] = self._news.popleft()

    def _ask(self, event: events.Asked) -> None:
        if event.round > self._round:  # in ledgers from before, whoever was asked first opened the round
            self._open(events.Opened(at_s=event.at_s, round=event.round))
        if self._current is not None:
            self._current.asked.append(event.device)
        self._questions += 1
        self._asked[event.device] = self._questions, event

    def _add(
        self,
        answer: events.Declined | events.Dispatched,
        gain: float,
        cpu_hz: float,
        *,
        declined: str | None = None,
        sent: events.Dispatched | None = None,
    ) -> None:
        question, asked = self._asked.pop(answer.device)
        row = self._row(asked, answer.at_s - self.start_s, gain, cpu_hz, declined=declined, sent=sent)
        if asked.round in self._news_of:
            device, staleness, train_loss = self._news_of[asked.round]
            row = row._replace(arrived=device, staleness=staleness, train_loss=train_loss)
        self.rows.append(row)
        self._question_of_row.append(question)

    def _settle(self, token: str, took: events.Applied) -> None:
        """What was predicted in the row gives way to what was measured."""
        place = self._row_of[token]
        self.rows[place] = self._with(self.rows[place], took.compute_s, took.upload_s, took.compute_j, took.upload_j, took.cost)

    def _close(self, event: events.Closed) -> None:
        """What the devices of a synchronous round were charged is known at its end."""
        assert self._current is not None
        self.took_s[event.round] = event.took_s
        for one in self._current.selections:
            place, charge = self._row_of[one.sent.token], one.charge(self._terms_of(one.sent.device), event.took_s)
            row = self.rows[place]
            assert row.compute_s is not None and row.upload_s is not None
            row = self._with(row, row.compute_s, row.upload_s, charge.compute_j, charge.upload_j, charge.cost)
            in_time = isinstance(one.ended, events.Applied)
            loss = one.ended.train_loss if isinstance(one.ended, events.Applied) else None
            self.rows[place] = row._replace(train_loss=loss, dropped=not in_time)
        self._current = None

    def _give_up(self, event: events.GivenUp) -> None:
        self._note(event.token, outcome=f"given up: {event.reason}", ended_s=event.at_s - self.start_s)
        if self._current is not None:
            self._current.end(event)
            return
        sent, place = self._sent[event.token], self._row_of[event.token]
        upload_s = max(event.at_s - sent.at_s - sent.compute_s, 0.0)
        row = self.rows[place]
        self.rows[place] = self._with(row, sent.compute_s, upload_s, sent.compute_j, sent.upload_j, event.cost)

    def own(self, device: int) -> dict[str, float]:
        """What the device has of what may be its own, or a board has measured; the configured value where there is neither."""
        terms, announced = self._terms, self.joined[self.names[device]].own
        found = {**{name: float(getattr(terms, name)) for name in Quantities._fields}, "samples_spread": 0.0}
        if (measured := self.joined[self.names[device]].measured) is not None:
            found |= {name: value for name, value in measured.items() if name in Quantities._fields}
            found |= limits_of_board(self._live, terms, self.limits) if self.limits is not None else {}
            found |= set_limits(self._changed, terms, announced)
        return {**found, **announced}

    def trained(self, token: str) -> int:
        """The samples of a task."""
        return self.rows[self._row_of[token]].samples

    def _terms_of(self, device: int) -> Terms:
        own = self.own(device)
        return own_terms(self._terms, Quantities(*(own[name] for name in Quantities._fields)))

    def _with(self, row: Row, compute_s: float, upload_s: float, compute_j: float, upload_j: float, charged: float) -> Row:
        terms = self._terms_of(row.device)
        return row._replace(
            compute_s=compute_s,
            upload_s=upload_s,
            compute_j=compute_j,
            upload_j=upload_j,
            cost=charged,
            time_ok=within(compute_s + upload_s, terms.max_time_s),
            energy_ok=within(compute_j + upload_j, terms.max_energy_j),
        )

    def _row(
        self,
        asked: events.Asked,
        at_s: float,
        gain: float,
        cpu_hz: float,
        *,
        declined: str | None = None,
        sent: events.Dispatched | None = None,
    ) -> Row:
        row = Row(
            round=asked.round,
            clock_s=at_s,
            arrived=None,
            device=asked.device,
            gain=gain,
            cpu_hz=cpu_hz,
            samples=(sent.samples if sent is not None else None) or self.joined[self.names[asked.device]].samples,
            power_w=sent.power_w if sent is not None else 0.0,
            compute_s=None,
            upload_s=None,
            compute_j=None,
            upload_j=None,
            cost=None,
            score=asked.score,
            queue=asked.queue,
            total_queue=asked.total_queue,
            staleness=None,
            declined=sent is None,
            time_ok=True,
            energy_ok=True,
            decline_reason=declined,
            known_gain=asked.known_gain,
            known_gain_age_s=asked.known_gain_age_s,
        )
        return row if sent is None else self._with(row, sent.compute_s, sent.upload_s, sent.compute_j, sent.upload_j, sent.cost)

    def _task(self, sent: events.Dispatched) -> dict[str, Any]:
        """A task as it is handed out: what the twin had seen of the device on average, and what the device predicts."""
        count, *sums = self._sums.get(sent.device, (0, 0.0, 0.0, 0.0))
        known = [total / count if count else None for total in sums]
        return {
            "round": sent.round,
            "device": sent.device,
            "name": self.names[sent.device],
            "dispatched_s": sent.at_s - self.start_s,
            "outcome": "open",
            "version": sent.version,
            "twin_s": known[0],
            "twin_j": known[1],
            "twin_cost": known[2],
            "predicted_s": sent.compute_s + sent.upload_s,
            "predicted_j": sent.compute_j + sent.upload_j,
            "predicted_cost": sent.cost,
        }

    def _note(self, token: str, **more: Any) -> None:
        """What came of a task. It is another one then, so that who holds it has it as it was."""
        self.tasks[token] = {**self.tasks[token], **more}

    def _end(self, took: events.Applied) -> None:
        time_s, energy_j = took.compute_s + took.upload_s, took.compute_j + took.upload_j
        count, *sums = self._sums.get(took.device, (0, 0.0, 0.0, 0.0))
        self._sums[took.device] = count + 1, sums[0] + time_s, sums[1] + energy_j, sums[2] + took.cost
        self._note(
            took.token,
            ended_s=took.at_s - self.start_s,
            outcome="late" if took.late else "applied",
            staleness=took.staleness,
            actual_s=time_s,
            actual_j=energy_j,
            actual_cost=took.cost,
            clock_cost=cost(self._terms_of(took.device), took.elapsed_s, energy_j),
            elapsed_s=took.elapsed_s,
            link_s=took.link_s,
            believed=took.believed,
            time_source=_mixed(took.sources, "compute_s", "upload_s"),
            energy_source=_mixed(took.sources, "compute_j", "upload_j"),
            uploaded_bytes=took.uploaded_bytes,
        )


def _mixed(sources: dict[str, str], *keys: str) -> str:
    kinds = sorted({sources.get(key, "modelled") for key in keys})
    return "+".join(kinds)
