"""Whether the edge server lives and whether uploads come through, for whoever starts it again or watches it."""

from fedtwin.live.wire.answering import Answer
from fedtwin.live.wire.ports import Clock
from fedtwin.live.wire.real import CLOCK

STANDS_S = 10.0


class Health:
    """Told with every tick of the edge server; read by another thread."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._looked_at: float | None = None
        self._connected = self._path_ok = False

    def looked(self, *, connected: bool, path_ok: bool) -> None:
        self._connected, self._path_ok = connected, path_ok
        self._looked_at = self._clock.monotonic_s()

    def lives(self) -> Answer:
        """A server that still waits for its broker lives."""
        stood_s = 0.0 if self._looked_at is None else self._clock.monotonic_s() - self._looked_at
        return Answer(True) if stood_s < STANDS_S else Answer(False, f"the edge server stands still for {stood_s:.0f} s")

    def is_ready(self) -> Answer:
        lives = self.lives()
        if not lives.well:
            return lives
        if self._looked_at is None:
            return Answer(False, "the run is not open yet")
        if not self._connected:
            return Answer(False, "the broker is not reached")
        return Answer(True) if self._path_ok else Answer(False, "no upload comes through")
