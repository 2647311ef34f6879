"""Follows a run while it is written: what is new, again and again, until the run is finished."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from fedtwin.given import seconds_given

if TYPE_CHECKING:
    from fedtwin.live.run.events import Event
    from fedtwin.runs.run import Run


@dataclass(frozen=True)
class News:
    """What has been written since the last news: rows of the tables, and the events of a live run.

    ``run`` is the run as it stands now: look at it before you ask for the next news. In a live run the times, energies and cost
    of a row are predictions until its upload has come; ``run.rounds`` has them as they are known now.
    """

    run: "Run"
    rounds: pa.Table
    evaluations: pa.Table
    refusals: pa.Table
    events: "tuple[Event, ...]" = ()

    @property
    def finished(self) -> bool:
        """These are the last."""
        return self.run.finished

    def __bool__(self) -> bool:
        rows = self.rounds.num_rows + self.evaluations.num_rows + self.refusals.num_rows
        return self.finished or rows + len(self.events) > 0


def follow(next_news: Callable[[], News], *, every_s: float, timeout_s: float | None) -> Iterator[News]:
    """News as they come; the end when the run is finished, or when nothing has come for ``timeout_s``."""
    every_s = seconds_given("follow(every_s)", every_s)
    timeout_s = None if timeout_s is None else seconds_given("follow(timeout_s)", timeout_s)
    return _follow(next_news, every_s, timeout_s)


def _follow(next_news: Callable[[], News], every_s: float, timeout_s: float | None) -> Iterator[News]:
    heard_at = time.monotonic()
    while True:
        news = next_news()
        if news:
            yield news
            if news.finished:
                return
            heard_at = time.monotonic()
        elif timeout_s is not None and time.monotonic() - heard_at >= timeout_s:
            return
        time.sleep(every_s)
