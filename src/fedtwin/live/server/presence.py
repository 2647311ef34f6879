"""Who goes, who comes back, whose rights a person takes away: one line of the log each."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

from fedtwin.live.logs import say
from fedtwin.live.run import events
from fedtwin.live.run.events import Event
from fedtwin.live.run.live_run import LiveRun

LOOK_EVERY_S = 1.0


class Presence:
    """Is told of all events; ``credentials`` is a folder in a fleet's own, whose list says who is revoked."""

    def __init__(self, credentials: Path | None) -> None:
        self._offline: set[int] = set()
        self._list = None if credentials is None else credentials.parent / "fleet.json"
        self._written: tuple[int, int] | None = None
        self._revoked = self._revoked_now() or set()
        self._look_at = 0.0

    def happened(self, event: Event, run: LiveRun) -> None:
        match event:
            case events.StatusChanged(status="offline"):
                self._goes(event.device, "it is silent", run)
            case events.Declined(offline=True):
                self._goes(event.device, event.reason, run)
            case events.StatusChanged(status="idle") if event.device in self._offline:
                self._offline.discard(event.device)
                say(logging.INFO, "reconnected", device=run.core.names[event.device])
            case _:
                pass

    def missed(self, is_silent: Callable[[str], bool], run: LiveRun) -> None:
        """Who is not asked for another reason, such as a task that came to nothing, and has fallen silent since."""
        for device, (name, known) in enumerate(zip(run.core.names, run.core.twin.devices, strict=True)):
            if known.status == "offline" and device not in self._offline and is_silent(name):
                self._goes(device, "it is silent", run)

    def _goes(self, device: int, reason: str, run: LiveRun) -> None:
        name = run.core.names[device]
        if device not in self._offline and not run.core.is_quarantined(name):
            self._offline.add(device)
            say(logging.WARNING, "offline", device=name, reason=reason)

    def look(self, now: float) -> None:
        """Whether a person has revoked somebody, or given a new certificate; what a flood led to is said where it is cut."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY_S
        revoked = self._revoked_now()
        if revoked is None:
            return
        for name in sorted(revoked - self._revoked):
            say(logging.WARNING, "revoked", device=name, by="a person")
        for name in sorted(self._revoked - revoked):
            say(logging.INFO, "has rights again", device=name)
        self._revoked = revoked

    def _revoked_now(self) -> set[str] | None:
        """None where the list is what it was, or cannot be read."""
        if self._list is None:
            return None
        try:
            state = self._list.stat()
            if (state.st_mtime_ns, state.st_ino) == self._written:
                return None
            devices = json.loads(self._list.read_text(encoding="utf-8"))["devices"]
            found = {name for name, entry in devices.items() if entry["revoked"] and not entry.get("cut")}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None
        self._written = state.st_mtime_ns, state.st_ino
        return found
