"""What a device may send: a little all the time, more for every question and task that it was given."""

import math
from dataclasses import dataclass
from typing import NamedTuple

BURST_S, BURST_TASKS = 10.0, 4
CHUNK_BYTES = 128 * 1024
MESSAGES_OF_AN_ASK, MESSAGES_OF_A_TASK, MESSAGES_OF_A_CHUNK = 2, 20, 4
UPLOADS_OF_A_TASK, BYTES_OF_AN_ASK, BYTES_OF_A_TASK = 2, 4096, 65536


@dataclass(frozen=True)
class Rates:
    """The settings: what is allowed without any task, and the size of an upload."""

    messages_per_s: float
    bytes_per_s: float
    upload_bytes: int

    @property
    def task_messages(self) -> float:
        return MESSAGES_OF_A_TASK + MESSAGES_OF_A_CHUNK * math.ceil(self.upload_bytes / CHUNK_BYTES)

    @property
    def task_bytes(self) -> float:
        """With one repetition."""
        return UPLOADS_OF_A_TASK * self.upload_bytes + BYTES_OF_A_TASK


class Grant(NamedTuple):
    messages: float = 0.0
    size_bytes: float = 0.0

    def and_(self, messages: float, size_bytes: float) -> "Grant":
        return Grant(self.messages + messages, self.size_bytes + size_bytes)


class Allowance:
    """Of one device: what is left of it. It grows with time and with tasks, up to a burst.

    What is sent is heard of in looks at the broker's counters, which may be far apart when much is going on, while tasks are
    known at once. So what was granted since the last look counts whole until the next one has told what was sent for it: cut
    to a burst before that, a device that does many tasks between two looks would have sent more than it may.
    """

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._most = Grant(
            BURST_S * rates.messages_per_s + BURST_TASKS * rates.task_messages,
            BURST_S * rates.bytes_per_s + BURST_TASKS * rates.task_bytes,
        )
        self._left = self._most
        self._before_the_last_look = self._since_the_last_look = Grant()

    def asked(self) -> None:
        self._since_the_last_look = self._since_the_last_look.and_(MESSAGES_OF_AN_ASK, BYTES_OF_AN_ASK)

    def given_a_task(self) -> None:
        self._since_the_last_look = self._since_the_last_look.and_(self._rates.task_messages, self._rates.task_bytes)

    def sent(self, messages: float, size_bytes: float, seconds: float) -> None:
        """A look: in so many seconds, which may be more than a burst. What is overdrawn is worked off in as long as a burst
        takes to gather, however much it was.
        """
        earned = self._before_the_last_look.and_(self._rates.messages_per_s * seconds, self._rates.bytes_per_s * seconds)
        left = self._left.and_(*earned).and_(-messages, -size_bytes)
        self._left = Grant(*(max(min(now, most), -most) for now, most in zip(left, self._most, strict=True)))
        self._before_the_last_look, self._since_the_last_look = self._since_the_last_look, Grant()

    @property
    def messages(self) -> float:
        return self._in_all.messages

    @property
    def size_bytes(self) -> float:
        return self._in_all.size_bytes

    @property
    def is_overdrawn(self) -> bool:
        return min(self._in_all) < 0.0

    @property
    def _in_all(self) -> Grant:
        return self._left.and_(*self._before_the_last_look).and_(*self._since_the_last_look)


class Pace:
    """Lets so many through a second, by name; a few at once are free. More names than can be kept begin anew."""

    def __init__(self, per_s: float, burst: float, most_names: int = 10_000) -> None:
        self._per_s, self._burst, self._most_names = per_s, burst, most_names
        self._left: dict[str, tuple[float, float]] = {}

    def lets(self, name: str, now: float) -> bool:
        left, since = self._left.get(name, (self._burst, now))
        left = min(left + self._per_s * (now - since), self._burst) - 1.0
        if len(self._left) >= self._most_names and name not in self._left:
            self._left.clear()
        self._left[name] = max(left, -1.0), now
        return left >= 0.0
