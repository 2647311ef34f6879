"""What-if, in a process of its own: the twins that are served stay as they are, and nobody who looks at them waits."""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as TooLongError
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from typing import Any

from fedtwin.config import Config
from fedtwin.config.schema import KIND_OF_PART
from fedtwin.errors import FedtwinError
from fedtwin.processes import die_with_the_parent, interrupts_left_to_the_parent, script_left_to_the_parent
from fedtwin.registry import is_built_in
from fedtwin.service.telling import UnansweredError

LONGEST_NAME = 100
MOST_WAITING, LONGEST_S, LOOK_S = 4, 120.0, 0.2
MOST_ROUNDS, MOST_WORLDS, MOST_ADDED, MOST_TOGETHER = 1_000_000, 1000, 1000, 10_000_000
BODY: dict[str, Any] = {
    "type": "object",
    "required": ["run"],
    "additionalProperties": False,
    "properties": {
        "run": {"type": "string", "maxLength": 200},
        "at": {"type": "integer", "minimum": 0, "maximum": 10**12, "description": "the round to fork at; now without"},
        "set": {
            "type": "object",
            "maxProperties": 20,
            "additionalProperties": {"type": ["number", "string", "boolean"]},
            "description": "settings that are others",
        },
        "without": {
            "type": "array",
            "maxItems": 10_000,
            "items": {"type": ["integer", "string"]},
            "description": "devices lost",
        },
        "add": {"type": "integer", "minimum": 0, "maximum": MOST_ADDED},
        "rounds": {"type": "integer", "minimum": 1, "maximum": MOST_ROUNDS},
        "worlds": {"type": "integer", "minimum": 2, "maximum": MOST_WORLDS},
        "seed": {"type": "integer", "minimum": 0, "maximum": 2**53},
    },
}


def require_no_other_code(config: Config, settings: Mapping[str, Any]) -> None:
    """Who asks names fedtwin's own parts or those of the run: ``--trust`` is in the run's owner, not in who asks."""
    for setting, value in settings.items():
        if len(setting) > LONGEST_NAME:
            raise UnansweredError(400, f"{setting[:LONGEST_NAME]!r}… is no setting: none is so long.")
        section, _, key = setting.partition(".")
        if not isinstance(value, str) or value == getattr(getattr(config, section, None), key, None):
            continue
        kind = KIND_OF_PART.get(setting)
        if section == "code" or ":" in value or (kind is not None and not is_built_in(kind, value)):
            what = f"{setting} = {value[:LONGEST_NAME]!r} is not of fedtwin itself"
            raise UnansweredError(403, f"{what}: other code than the run's own is not run for who asks here.")


def answered(folder: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """In the worker."""
    from fedtwin.whatif import whatif

    found: dict[str, Any] = whatif(folder, **question).as_dict()
    return found


class Asking:
    """One worker, started with the first question, so that what it has compiled is there for the next."""

    def __init__(self) -> None:
        self._lock, self._waiting = threading.Lock(), 0
        self._pool: ProcessPoolExecutor | None = None
        self._ended = False

    def ask(self, folder: str, question: Mapping[str, Any], gone: threading.Event | None = None) -> dict[str, Any]:
        """The answer, unless nobody waits for it any more."""
        rounds, worlds = question.get("rounds", 1000), question.get("worlds", 100)
        if rounds * worlds > MOST_TOGETHER:
            raise UnansweredError(400, f"rounds = {rounds} in worlds = {worlds} are more than {MOST_TOGETHER} together.")
        with self._lock:
            if self._waiting >= MOST_WAITING:
                raise UnansweredError(429, f"{MOST_WAITING} questions are being answered: ask later.", {"Retry-After": "5"})
            self._waiting += 1
        try:
            return self._answer(folder, question, gone or threading.Event())
        except FedtwinError as error:
            raise UnansweredError(400, str(error)) from None
        except ImportError as error:
            raise UnansweredError(409, f"What-if needs {error.name or 'a library'}: pip install 'fedtwin[page,sim]'.") from None
        finally:
            with self._lock:
                self._waiting -= 1

    def _answer(self, folder: str, question: Mapping[str, Any], gone: threading.Event) -> dict[str, Any]:
        """A worker that was stopped for another question's sake is followed by a new one, which is asked again."""
        for _ in range(MOST_WAITING):
            pool, waiting = self._submitted(folder, question)
            try:
                return self._result(waiting, pool, gone)
            except (BrokenProcessPool, CancelledError):
                with self._lock:
                    stopped = self._pool is not pool and not self._ended
                if not stopped:
                    self.stop(pool)
                    break
        raise UnansweredError(409, "The worker ended without an answer: it was stopped, or had no memory left.")

    def _result(self, waiting: "Future[dict[str, Any]]", pool: ProcessPoolExecutor, gone: threading.Event) -> dict[str, Any]:
        """The time begins when the worker does."""
        begun: float | None = None
        while True:
            try:
                return waiting.result(LOOK_S)
            except TooLongError:
                if begun is None and waiting.running():
                    begun = time.monotonic()
                if gone.is_set():
                    if not waiting.cancel():
                        self.stop(pool)
                    raise UnansweredError(499, "Nobody waits for the answer.") from None
                if begun is not None and time.monotonic() - begun > LONGEST_S:
                    self.stop(pool)
                    raise UnansweredError(
                        422, f"The question took longer than {LONGEST_S:g} s: fewer rounds or worlds."
                    ) from None

    def _submitted(self, folder: str, question: Mapping[str, Any]) -> "tuple[ProcessPoolExecutor, Future[dict[str, Any]]]":
        with self._lock, interrupts_left_to_the_parent(), script_left_to_the_parent():
            if self._pool is not None:
                with suppress(BrokenProcessPool):  # its worker died since the last question
                    return self._pool, self._pool.submit(answered, folder, dict(question))
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=die_with_the_parent)
            return self._pool, self._pool.submit(answered, folder, dict(question))

    def stop(self, pool: ProcessPoolExecutor | None) -> None:
        """Ends the worker, also in the middle of an answer; the next question starts another."""
        with self._lock:
            if pool is None or self._pool is not pool:
                return
            self._pool = None
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """No question is answered any more."""
        self._ended = True
        self.stop(self._pool)
