"""T_max and E_max of a fleet of boards, from what updates take there."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedtwin.config import LiveConfig
from fedtwin.formulas.admitting import enough_for_most, round_up
from fedtwin.formulas.terms import Terms
from fedtwin.live.run import events

ROOM = 3.0
LEAST_TIME_S = 1.0
UNSETTLED = 1e6
"""Where nobody has measured anything yet, limits are as configured times this: the first tasks are the measurement."""


class Need(NamedTuple):
    """What an update takes at full power, on the run's clock."""

    time_s: float
    energy_j: float


def limits_for(needs: Sequence[Need], time_scale: float) -> tuple[float, float]:
    """Three times what nine boards of ten need at most. T_max is no less than a second of wall time, so that a moment's load
    keeps nobody out; E_max is then as much larger.
    """
    time_s = enough_for_most([need.time_s for need in needs])
    energy_j = enough_for_most([need.energy_j for need in needs])
    room = max(ROOM, LEAST_TIME_S / time_scale / max(time_s, 1e-9))
    return round_up(room * max(time_s, 1e-9)), round_up(room * max(energy_j, 1e-9))


def limits_of_board(live: LiveConfig, configured: Terms, settled: events.Limits | None) -> dict[str, float]:
    """The limits that are taken from the fleet; out of reach where they are not settled."""
    names = live.limits_from_fleet or []
    if settled is None:
        return {name: UNSETTLED * getattr(configured, name) for name in names}
    return {name: getattr(settled, name) for name in names}


def set_limits(changed: Mapping[str, Any], terms: Terms, own: Mapping[str, float]) -> dict[str, float]:
    """The limits that a person has set while the run went on; a device that has one of its own keeps it."""
    names = [name for name in ("max_time_s", "max_energy_j") if f"objective.{name}" in changed and name not in own]
    return {name: float(getattr(terms, name)) for name in names}


def is_due(needs: int, settled_with: int | None) -> bool:
    """When the first boards have measured themselves, and again when there are more than twice as many as the last time."""
    return needs > (0 if settled_with is None else 2 * settled_with)
