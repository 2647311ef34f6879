"""The limits that would let a fleet take part, from what its devices say when they decline."""

from fedtwin.formulas.admitting import MOST, enough_for_most, round_up
from fedtwin.formulas.cost import within
from fedtwin.live.run import events
from fedtwin.live.run.core import Core
from fedtwin.live.run.events import Event
from fedtwin.live.run.limits import Need

LIMITS = {"max_time_s": "time_s", "max_energy_j": "energy_j"}


class Advice:
    """What an update would take at every device, as it said last."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._needs: dict[int, Need] = {}

    def happened(self, event: Event) -> None:
        match event:
            case events.Declined() if event.time_s is not None and event.energy_j is not None:
                self._needs[event.device] = Need(event.time_s, event.energy_j)
            case events.Dispatched():
                self._needs[event.device] = Need(event.compute_s + event.upload_s, event.compute_j + event.upload_j)
            case _:
                pass

    def told(self) -> str | None:
        """Which limits keep the fleet out, and the values that would let nine of ten devices take part at full power."""
        tight = {}
        for name, needed in LIMITS.items():
            limit = min((getattr(self._core.terms_of(device), name) for device in self._needs), default=0.0)
            enough = enough_for_most([getattr(need, needed) for need in self._needs.values()]) if self._needs else 0.0
            if not within(enough, limit):
                tight[f"{self._setting(name)} = {limit:g}"] = f"{round_up(enough):g}"
        if not tight:
            return None
        words = "is too tight" if len(tight) == 1 else "are too tight"
        values, most = " and ".join(tight.values()), f"{100 * MOST:.0f} % of the devices"
        return f"{' and '.join(tight)} {words}, {values} would let {most} take part"

    def _setting(self, name: str) -> str:
        """Where the limit is to be changed."""
        if any(name in self._core.members[self._core.names[device]].joined.own for device in self._needs):
            return f"fleet.{name}"
        from_fleet = name in (self._core.live.limits_from_fleet or [])
        measured = from_fleet and any(name in self._core.limits_of(device) for device in self._needs)
        return f"objective.{name}{' (measured)' if measured else ''}"
