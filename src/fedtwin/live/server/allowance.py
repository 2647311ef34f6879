"""What a device may send: a little all the time, more for every question and task that it was given."""

import math
from dataclasses import dataclass

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


class Allowance:
    """Of one device: what is left of it. It grows with time and with tasks, up to a burst."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._most_messages = BURST_S * rates.messages_per_s + BURST_TASKS * rates.task_messages
        self._most_bytes = BURST_S * rates.bytes_per_s + BURST_TASKS * rates.task_bytes
        self.messages, self.size_bytes = self._most_messages, self._most_bytes

    def asked(self) -> None:
        self._grow(MESSAGES_OF_AN_ASK, BYTES_OF_AN_ASK)

    def given_a_task(self) -> None:
        self._grow(self._rates.task_messages, self._rates.task_bytes)

    def sent(self, messages: float, size_bytes: float, seconds: float) -> None:
        """In so many seconds, which may be more than a burst. What is overdrawn is worked off in as long as a burst takes to
        gather, however much it was.
        """
        self._grow(self._rates.messages_per_s * seconds - messages, self._rates.bytes_per_s * seconds - size_bytes)

    @property
    def is_overdrawn(self) -> bool:
        return self.messages < 0.0 or self.size_bytes < 0.0

    def _grow(self, messages: float, size_bytes: float) -> None:
        self.messages = max(min(self.messages + messages, self._most_messages), -self._most_messages)
        self.size_bytes = max(min(self.size_bytes + size_bytes, self._most_bytes), -self._most_bytes)


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
