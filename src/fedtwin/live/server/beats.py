"""What the devices say of themselves between two questions: no part of the run before a line of the ledger says so."""

from typing import NamedTuple

from fedtwin.live.run import events
from fedtwin.live.run.core import Core

TELL_EVERY_S = 1.0


class _Latest(NamedTuple):
    """The last that a device said, and when."""

    fact: events.Heard
    at_s: float


class Beats:
    """The latest of every device. It becomes a part of the run before a question is decided, at most once a second."""

    def __init__(self) -> None:
        self._latest: dict[int, _Latest] = {}
        self._tell_after = 0.0

    def heard(self, device: int, gain: float | None, cpu_hz: float | None, at_s: float) -> None:
        """What a device does not say stays as it said it before."""
        if device in self._latest:
            before = self._latest[device].fact
            gain, cpu_hz = before.gain if gain is None else gain, before.cpu_hz if cpu_hz is None else cpu_hz
        self._latest[device] = _Latest(events.Heard(device, gain, cpu_hz), at_s)

    def told(self, core: Core, at_s: float, now: float) -> events.Told | None:
        """What is news by now (``now`` is in wall seconds); a device that was asked since has said it better."""
        if not self._latest or now < self._tell_after:
            return None
        self._tell_after = now + TELL_EVERY_S
        devices = core.twin.devices
        facts = {
            device: latest.fact
            for device, latest in self._latest.items()
            if (known := devices[device].gain or devices[device].cpu_hz) is None or latest.at_s > known.learned_s
        }
        self._latest.clear()
        return core.tell(facts, at_s)
