"""One run that is served: opened, indexed and followed in a thread of its own, so that who asks never waits for the disk."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedtwin.config import LiveConfig
from fedtwin.errors import FedtwinError
from fedtwin.records.files import CONFIG_NAME, LOCK_NAME
from fedtwin.records.lock import is_held
from fedtwin.runs import Moment, Run, open_run
from fedtwin.runs.live import has_lost_lines, last_line_age_s, ledger_files
from fedtwin.runs.run import LEDGER_NAME
from fedtwin.service.bell import Bell
from fedtwin.service.ledger_facts import LedgerFacts
from fedtwin.service.memory import give_memory_back
from fedtwin.service.names import names_of
from fedtwin.service.stamps import fingerprint, stamp_of
from fedtwin.service.telling import UnansweredError, log_unexpected

LOOK_EVERY_S, RETRY_S, LONG_RETRY_S, PATIENCE_S = 0.1, 1.0, 30.0, 20.0
AT_MOST_EVERY_S = 2.0
CHANGED = "has been changed since it was read: it is read anew"
MOST_WINDOWS = 3
REST = 4.0
"""A run that grows is indexed again after so many times as long as that took."""
Made = TypeVar("Made")


class _MadeOnce(NamedTuple):
    """What was made of which version of the run, when, and how long that took."""

    version: int
    at: float
    took_s: float
    found: Any


NOTHING_MADE = _MadeOnce(-1, -math.inf, 0.0, None)


class _Now(NamedTuple):
    """The run that is served, its version, the stamp of its files and what was made of it: always read together."""

    run: Run | None
    version: int
    stamp: Any
    made: dict[Any, _MadeOnce]


class _Stand(NamedTuple):
    """Where a run stood when something began to be made of it. What is made of a run that another has replaced since goes into
    what was kept of that one, where nobody looks any more.
    """

    kept: dict[Any, _MadeOnce]
    version: int
    begun: float

    def keep(self, key: Any, found: Made) -> Made:
        """Of what is asked with other numbers every time, only the last is worth its memory."""
        give_memory_back()
        windows = [key for key in list(self.kept) if isinstance(key, tuple)]
        for old in windows[: max(len(windows) - MOST_WINDOWS, 0)]:
            self.kept.pop(old, None)
        now = time.monotonic()
        self.kept[key] = _MadeOnce(self.version, now, now - self.begun, found)
        return found


class Served:
    """``reading`` gives the run as it stands. What is known of a live run grows in place, so it is read under the lock."""

    def __init__(self, name: str, folder: Path) -> None:
        self.id, self.folder = name, folder
        self.bell, self.facts = Bell(), LedgerFacts()
        self.trouble: str | None = None
        self.glance: Run | None = None
        """A finished simulation before its index is there: its settings and its summary."""
        self._lock = threading.RLock()
        self._at_work: dict[Any, threading.Lock] = {}
        self._ready, self._ended = threading.Event(), threading.Event()
        self._now = _Now(None, 0, None, {})
        self._making: set[Any] = set()
        self._thread = threading.Thread(target=self._keep_up, name=f"reads {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self.bell.ring()

    def still_reads(self, patience_s: float) -> bool:
        """Whether its threads have not ended by then."""
        self._thread.join(patience_s)
        return self._thread.is_alive() or bool(self._making)

    @property
    def closed(self) -> bool:
        return self._ended.is_set()

    @property
    def version(self) -> int:
        return self._now.version

    @contextmanager
    def reading(self) -> Iterator[Run]:
        """The run, once it has been opened; until then, and where it cannot be read, the reason."""
        with self._reading() as (run, _):
            yield run

    @contextmanager
    def _reading(self) -> Iterator[tuple[Run, _Now]]:
        if not self._ready.wait(PATIENCE_S):
            raise UnansweredError(503, f"The run {self.id!r} is still being read: ask again.", {"Retry-After": "5"})
        now = self._now
        if now.run is None:
            raise UnansweredError(409, self.trouble or f"The run {self.id!r} cannot be read.")
        if now.run.finished and now.stamp != stamp_of(self.folder):
            raise UnansweredError(409, f"The run {self.id!r} {CHANGED}.", {"Retry-After": "2"})
        if not now.run.is_live:
            yield now.run, now
            return
        with self._lock:
            newest = self._now if self._now.run is not None else now
            yield newest.run or now.run, newest

    @property
    def is_indexed(self) -> bool:
        return self._ready.is_set()

    @property
    def readable(self) -> bool:
        """Whether there is anything to read, by now."""
        return self._ready.wait(PATIENCE_S) and self._now.run is not None

    def remembered(self, key: Any, make: Callable[[Run], Made], *, lasting: bool = False) -> Made:
        """What was made of the run as it stands; of one that grows, what was made a moment ago, if making it takes long: a live
        run is written on only while nobody holds it. What is ``lasting`` is made once.
        """
        with self._reading() as (run, now):
            if (made := _still_good(now, key, run, lasting=lasting)) is not None:
                return made.found  # type: ignore[no-any-return]
            stand = _Stand(now.made, now.version, time.monotonic())
            return stand.keep(key, make(run))

    def made_of_tables(self, key: Any, make: Callable[[Run], Made]) -> Made:
        """The same of what takes long and looks at the tables only: a live run is written on meanwhile. One of a kind at a
        time, so that who waits finds it made; not for who is ``reading``, which others would wait for.
        """
        with self._at_work.setdefault(key[0] if isinstance(key, tuple) else key, threading.Lock()):
            with self._reading() as (run, now):
                if (made := _still_good(now, key, run)) is not None:
                    return made.found  # type: ignore[no-any-return]
                stand, resting = _Stand(now.made, now.version, time.monotonic()), run.at_rest()
            return stand.keep(key, make(resting))

    def lately(self, key: Any, make: Callable[[Run], Made]) -> Made | None:
        """Of the tables, made by a thread: what it made last, None before that. Nobody waits."""
        now = self._now
        made = now.made.get(key, NOTHING_MADE)
        old = time.monotonic() - made.at > max(AT_MOST_EVERY_S, 10 * REST * made.took_s)
        if made.version != now.version and old and key not in self._making:
            self._making.add(key)
            threading.Thread(target=self._make, args=(key, make), name=f"makes {key} of {self.id}", daemon=True).start()
        return made.found  # type: ignore[no-any-return]

    def _make(self, key: Any, make: Callable[[Run], Any]) -> None:
        try:
            with suppress(UnansweredError, FedtwinError):
                self.made_of_tables(key, make)
        except Exception as error:  # records may hold anything; who asks for it is told
            log_unexpected(f"{key} of {self.id}", error)
        finally:
            self._making.discard(key)

    def names(self) -> list[str]:
        with self.reading() as run:
            return list(self.facts.names) if run.is_live else self.remembered("names", names_of)

    def evaluations(self) -> list[dict[str, Any]]:
        with self.reading() as run:
            return (
                self.facts.evaluations
                if run.is_live
                else self.remembered("evaluations", lambda run: run.evaluations.to_pylist())
            )

    def refusals(self) -> list[dict[str, Any]]:
        with self.reading() as run:
            return self.facts.refusals if run.is_live else self.remembered("refusals", lambda run: run.refusals.to_pylist())

    def latest(self) -> Moment | None:
        """The last moment there is; None of a live run that has not started."""
        with self.reading() as run:
            try:
                return run.moment()
            except FedtwinError:
                if run.is_live:
                    return None
                raise

    @property
    def is_written(self) -> bool:
        """Whether somebody writes in the folder: an edge server, or a simulation."""
        return is_held(self.folder / LOCK_NAME)

    def silent_s(self, run: Run) -> float:
        """Since a live run's last line, by its own clock, which stands still where nobody serves it."""
        if not run.is_live or not self.is_written:
            return 0.0
        return last_line_age_s(self.folder) / (run.config.live or LiveConfig()).time_scale

    # The thread

    def _keep_up(self) -> None:
        while not self._ended.is_set():
            try:
                if (self.folder / LEDGER_NAME).exists() or any(self.folder.glob("ledger-*.jsonl")):
                    self._follow_live()
                else:
                    self._follow_simulation()
                self._until_it_is_another()
                continue
            except FedtwinError as error:
                begun = self._now.run is not None or (self.folder / CONFIG_NAME).exists()
                self._fail(str(error) if begun else f"The run {self.id!r} has not begun yet.")
            except OSError as error:
                self._fail(f"{str(self.folder)!r} cannot be read: {error.strerror or error}.")
            except Exception as error:  # a folder may hold anything; the server goes on, and says what it met
                self._fail(f"{str(self.folder)!r} cannot be read: {type(error).__name__}.")
            self._ended.wait(RETRY_S if self._now.run is None else LONG_RETRY_S)

    def _until_it_is_another(self) -> None:
        """A finished run stays as it is. If its folder holds another one by now, nothing of it holds any more; nor of a ledger
        that has lost lines.
        """
        run, _, stamp, _ = self._now
        while not self._ended.is_set() and run is not None and run.finished and stamp == stamp_of(self.folder):
            self._ended.wait(RETRY_S)
        with self._lock:
            self._ready.clear()
            self.glance, self.trouble = None, f"The run {self.id!r} {CHANGED}."
            self._now = _Now(None, self._now.version + 1, None, {})

    def _fail(self, sentence: str) -> None:
        """What was read before stays; the sentence says why there is no more."""
        self.trouble = self.without_folder(sentence)
        self._ready.set()
        self.bell.ring()

    def without_folder(self, sentence: str) -> str:
        """Where a run lies is nobody's business who only looks at it."""
        return sentence.replace(str(self.folder), self.folder.name) if os.sep in str(self.folder) else sentence

    def _take(self, run: Run, stamp: Any) -> None:
        with self._lock:
            self._now, self.trouble = self._now._replace(run=run, version=self._now.version + 1, stamp=stamp), None
        self._ready.set()
        self.bell.ring()

    def _follow_live(self) -> None:
        next_news, self.facts = open_run(self.folder).reporter(), LedgerFacts()
        ledger = ledger_files(self.folder)
        while not self._ended.is_set():
            before, ledger, stamp = ledger, ledger_files(self.folder), stamp_of(self.folder)
            if stamp is None and has_lost_lines(before, ledger):
                return
            with self._lock:
                if news := next_news():
                    self.facts.happened(news)
                    self._take(news.run, stamp)
            if news.finished:
                return
            self._ended.wait(LOOK_EVERY_S)

    def _follow_simulation(self) -> None:
        seen: Any = None
        while not self._ended.is_set():
            stands = fingerprint(self.folder)
            if stands == seen:
                self._ended.wait(LOOK_EVERY_S)
                continue
            begun, stamp, run = time.monotonic(), stamp_of(self.folder), open_run(self.folder)
            if run.finished:
                self.glance = run
            if run.config.run.records or not run.finished:
                run.twin()
            give_memory_back()
            self._take(run, stamp)
            if run.finished:
                return
            seen = stands
            self._ended.wait(REST * (time.monotonic() - begun))


def _still_good(now: _Now, key: Any, run: Run, *, lasting: bool = False) -> _MadeOnce | None:
    made = now.made.get(key)
    if made is None:
        return None
    rest_s = min(20 * made.took_s, 60.0) if run.is_live else min(REST * made.took_s, 5.0)
    return made if made.version == now.version or lasting or time.monotonic() - made.at < rest_s else None
