"""A device whose tasks come to nothing is left alone for a time that doubles, until an upload of it is mixed in."""

from dataclasses import dataclass, field

MOST_S = 600.0
MOST_DOUBLINGS = 40


@dataclass
class BackOff:
    """Counts what came to nothing in a row: a task given up, a question without an answer. The first costs nothing, since
    whoever was started anew has had one. A state that changes by events only; seconds are the run's.
    """

    wall_s: float
    time_scale: float
    failures: dict[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def _first_s(self) -> float:
        return self.wall_s / self.time_scale

    @property
    def _most_s(self) -> float:
        return max(MOST_S, self.wall_s) / self.time_scale

    def failed(self, device: int, at_s: float) -> None:
        count, since_s = self.failures.get(device, (0, at_s))
        if at_s > since_s + 2.0 * self._most_s:
            count = 0  # so long ago that it says nothing of today
        self.failures[device] = count + 1, at_s

    def delivered(self, device: int) -> None:
        self.failures.pop(device, None)

    def holds(self, device: int) -> bool:
        """Whether the device was left alone, or is."""
        return self.failures.get(device, (0, 0.0))[0] > 1

    def holds_after_another(self, device: int) -> bool:
        """Whether one failure more keeps the device out for a while."""
        return device in self.failures

    def until_s(self, device: int, *, needed: bool) -> float:
        """The device is not asked before. Where it is ``needed``, since nobody else is there, only the first wait holds."""
        count, failed_at_s = self.failures.get(device, (0, 0.0))
        if count < 2:
            return failed_at_s
        wait_s = self._first_s if needed else self._first_s * 2.0 ** min(count - 2, MOST_DOUBLINGS)
        return failed_at_s + min(wait_s, self._most_s)
