"""What the devices say of themselves between two questions: no part of the run before a line of the ledger says so."""

from typing import NamedTuple

from fedtwin.live.run import events
from fedtwin.live.run.core import Core

TELL_EVERY_S = 1.0
MOST_FACTS = 40
"""In one line: 1.2 kB, so that a task costs less than 2 kB where not everybody who is asked takes it."""


class _Latest(NamedTuple):
    """The last that a device said, and when."""

    fact: events.Heard
    at_s: float


class Beats:
    """The latest of every device. It becomes a part of the run before a question, at most once a second."""

    def __init__(self) -> None:
        self._latest: dict[int, _Latest] = {}
        self._tell_after = 0.0

    def heard(self, device: int, gain: float | None, cpu_hz: float | None, at_s: float) -> None:
        """What a device does not say stays as it said it before."""
        if device in self._latest:
            before = self._latest[device].fact
            gain, cpu_hz = before.gain if gain is None else gain, before.cpu_hz if cpu_hz is None else cpu_hz
        self._latest[device] = _Latest(events.Heard(device, gain, cpu_hz), at_s)

    def told(self, core: Core, asked: events.Asked, at_s: float, now: float) -> events.Told | None:
        """What is news by now (``now`` is in wall seconds): who is about to be asked first, then who could be, then the others,
        and among these the longest untold.
        """
        if now < self._tell_after:
            return None
        facts: list[events.Heard] = []
        for device in self._in_order(core, asked.device):
            latest, known = self._latest.pop(device), core.twin.devices[device]
            learned = known.gain or known.cpu_hz
            if learned is None or latest.at_s > learned.learned_s:  # a device that was asked since has said it better
                facts += news.facts if (news := core.tell({device: latest.fact}, at_s)) is not None else []
            if len(facts) == MOST_FACTS:
                break
        if not facts:
            return None
        self._tell_after = now + TELL_EVERY_S
        return events.Told(at_s=at_s, facts=facts)

    def _in_order(self, core: Core, asked: int) -> list[int]:
        devices = core.twin.devices
        return sorted(self._latest, key=lambda device: (device != asked, devices[device].status != "idle"))
