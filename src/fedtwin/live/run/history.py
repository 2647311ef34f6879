"""What has happened in a live run, as the rows of its tables: read from the events of its ledger, in order."""

import math
from collections import deque
from collections.abc import Iterable

from fedtwin.config import Config
from fedtwin.formulas.cost import within
from fedtwin.formulas.terms import Terms, terms_of
from fedtwin.learning.aggregate import Refusal
from fedtwin.learning.evaluation import Evaluation
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.tasks import TaskRows
from fedtwin.records import Row


class History:
    """Reads events in order and keeps what the tables need."""

    def __init__(self, config: Config, names: list[str]) -> None:
        self._config, self._names = config, names
        self._terms: Terms = terms_of(config)
        self._news: deque[tuple[int, int, float | None]] = deque()
        self._asked: events.Asked | None = None
        self._row_of: dict[str, int] = {}
        self._sent: dict[str, events.Dispatched] = {}
        self.rows: list[Row] = []
        self.tasks = TaskRows(self._terms)
        self.start_s = 0.0
        self.evaluations: list[Evaluation] = []
        self.refusals: list[Refusal] = []
        self.refused: dict[tuple[str, str], int] = {}
        self.samples: dict[str, int] = {}
        self.cpu_hz: dict[int, float] = {}
        self._round = 0

    def read(self, log: Iterable[Event]) -> None:
        for event in log:
            self._read(event)

    def _read(self, event: Event) -> None:
        match event:
            case events.Joined():
                self.samples[event.name] = event.samples
            case events.Started():
                self.start_s = self.tasks.start_s = event.at_s
            case events.Asked():
                if event.round > self._round:
                    self._round = event.round
                self._asked = event
            case events.Declined() if self._asked is not None:
                gain, cpu_hz = event.gain or math.nan, event.cpu_hz or math.nan
                self._add(self._row(self._asked, event.at_s - self.start_s, gain, cpu_hz, declined=event.reason), last=False)
            case events.Dispatched() if self._asked is not None:
                self._row_of[event.token], self._sent[event.token] = len(self.rows), event
                self._add(self._row(self._asked, event.at_s - self.start_s, event.gain, event.cpu_hz, sent=event), last=True)
                self.cpu_hz[event.device] = event.cpu_hz
                self.tasks.sent(event, self._names[event.device])
            case events.Applied():
                if not event.late:
                    self._settle(event.token, event)
                self._news.append((event.device, event.staleness, event.train_loss))
                self.tasks.applied(event)
            case events.Passed():
                if self._news:
                    self._news.popleft()
            case events.GivenUp():
                self._give_up(event)
            case events.Refused():
                key = event.name, event.reason.partition(":")[0]
                self.refused[key] = max(event.count, self.refused.get(key, 0))
                device = self._names.index(event.name) if event.name in self._names else -1
                self.refusals.append(Refusal(self._round, event.at_s - self.start_s, device, f"{event.what}: {event.reason}"))
            case events.Measured():
                self.evaluations.append(
                    Evaluation(
                        event.round, event.model_at_s - self.start_s, event.energy_j, event.test_loss, event.test_accuracy
                    )
                )
            case _:
                pass

    def _add(self, row: Row, *, last: bool) -> None:
        """Every upload opens a round, in the order they come, and stands in all rows of it."""
        if self._news and row.round > 0:
            device, staleness, train_loss = self._news[0]
            row = row._replace(arrived=device, staleness=staleness, train_loss=train_loss)
            if last:
                self._news.popleft()
        self.rows.append(row)

    def _settle(self, token: str, took: events.Applied) -> None:
        """What was predicted in the row gives way to what was measured."""
        place = self._row_of[token]
        self.rows[place] = self._with(self.rows[place], took.compute_s, took.upload_s, took.compute_j, took.upload_j, took.cost)

    def _give_up(self, event: events.GivenUp) -> None:
        sent, place = self._sent[event.token], self._row_of[event.token]
        upload_s = max(event.at_s - sent.at_s - sent.compute_s, 0.0)
        row = self.rows[place]
        self.rows[place] = self._with(row, sent.compute_s, upload_s, sent.compute_j, sent.upload_j, event.cost)
        self.tasks.given_up(event)

    def _with(self, row: Row, compute_s: float, upload_s: float, compute_j: float, upload_j: float, charged: float) -> Row:
        return row._replace(
            compute_s=compute_s,
            upload_s=upload_s,
            compute_j=compute_j,
            upload_j=upload_j,
            cost=charged,
            time_ok=within(compute_s + upload_s, self._terms.max_time_s),
            energy_ok=within(compute_j + upload_j, self._terms.max_energy_j),
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
            samples=self.samples[self._names[asked.device]],
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
        )
        return row if sent is None else self._with(row, sent.compute_s, sent.upload_s, sent.compute_j, sent.upload_j, sent.cost)
