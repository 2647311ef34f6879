"""The clock of a live run."""

from fedtwin.live.wire.ports import Clock


class RunClock:
    """Wall seconds since the run began over its time scale, steady while this process lives.

    By the wall clock once, so that the time we were away has passed; never back, whatever that clock says.
    """

    def __init__(self, time_scale: float, last_at_s: float, began_wall_s: float | None, clock: Clock) -> None:
        self._time_scale, self._clock = time_scale, clock
        away_s = 0.0 if began_wall_s is None else (clock.wall_s() - began_wall_s) / time_scale
        self._start_s, self._started_at = max(last_at_s, away_s), clock.monotonic_s()

    def now_s(self) -> float:
        return self._start_s + (self._clock.monotonic_s() - self._started_at) / self._time_scale

    def at_s(self, wall_s: float) -> float:
        """When something happened by the wall clock; not later than now."""
        return self.now_s() - max(0.0, self._clock.wall_s() - wall_s) / self._time_scale
