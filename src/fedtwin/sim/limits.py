"""Why a fleet declines, and what would change it: C5, C6 and the radio's power, held against the fleet's own draws.

A device is admitted if it finds a power in more than half of the rounds looked at, a fleet if nine devices of ten are. Where
devices have a limit of their own, changing it means the same value for all of them: ``fleet.max_time_s``, or the column of the
fleet's file.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fedtwin.config import Config
from fedtwin.formulas.admitting import MOST, enough_for_most, rounded_up
from fedtwin.formulas.power import optimal_plan
from fedtwin.formulas.rate import upload_energy_j, upload_time_s
from fedtwin.formulas.terms import Terms, terms_of
from fedtwin.records import Summary
from fedtwin.world.fleet import fleet_columns
from fedtwin.world.world import Draws

DEVICES_LOOKED_AT, ROUNDS_LOOKED_AT = 200, 15
UNLIMITED = 1e30
TIME, ENERGY, POWER = "objective.max_time_s", "objective.max_energy_j", "radio.max_power_w"
LIMITS = {"max_time_s": TIME, "max_energy_j": ENERGY, "max_power_w": POWER}

Remedy = dict[str, float]


class Case(NamedTuple):
    """One device in one round."""

    gain: float
    cpu_hz: float
    samples: float


class Looked(NamedTuple):
    """One device, with its terms, in some rounds."""

    terms: Terms
    cases: list[Case]


def sentence_of_declines(config: Config, summary: Summary) -> str | None:
    """Of a run in which nobody was selected, all were dropped, or more rounds passed than selections were made; else None."""
    if summary.drops and summary.drops == summary.rounds:
        timeout = f"run.sync_timeout_s = {config.run.sync_timeout_s:g}"
        return f"Every upload was dropped, nothing was mixed in: {timeout} is over before any device is done."
    if summary.passed_rounds <= summary.rounds or summary.declines == 0:
        return None
    what = f"Nobody was selected in {summary.passed_rounds} rounds, every idle device declined"
    if summary.rounds > 0:
        rounds = f"{summary.passed_rounds} of the {config.run.rounds}" if config.run.mode == "async" else summary.passed_rounds
        what = f"In {rounds} rounds every idle device declined"
    return f"{what}: {_advice(config)}."


def remedies(config: Config) -> list[Remedy]:
    """The least values that admit the fleet: one limit changed alone, the smallest change first, or else two together.

    Empty where the limits as they are admit it. Values are rounded up to three digits.
    """
    looked, limits = _look(config), _limits(config)
    if _share(looked) >= MOST:
        return []
    alone = [(name, _least(name, looked)) for name in LIMITS]
    found = [(value / limits[name].least, limits[name].setting, value) for name, value in alone if value < math.inf]
    if found:
        return [{setting: value} for _, setting, value in sorted(found)]
    time_s = _least("max_time_s", _with(looked, max_energy_j=UNLIMITED))
    energy_j = _least("max_energy_j", _with(looked, max_time_s=time_s))
    return [{limits["max_time_s"].setting: time_s, limits["max_energy_j"].setting: energy_j}]


def share_admitted(config: Config) -> float:
    """Which part of the devices finds a power in more than half of the rounds."""
    return _share(_look(config))


def _advice(config: Config) -> str:
    found, who = remedies(config), f"{100 * MOST:.0f} % of the devices find a power in most rounds"
    if not found and config.world.availability != "always":
        return f"the limits let {who}, but world.availability = {config.world.availability!r} says who answers at all"
    if not found:
        return f"the limits let {who}, so play more rounds"
    limits = {limit.setting: limit.words for limit in _limits(config).values()}
    first, *others = found
    names = " and ".join(f"{name} = {limits[name]}" for name in first)
    values = " and ".join(f"{value:g}" for value in first.values())
    too_tight = "is too tight" if len(first) == 1 else "are too tight together"
    instead = "; so would ".join(
        f"{name} = {value:g} instead of {limits[name]}" for other in others for name, value in other.items()
    )
    return f"{names} {too_tight}, {values} would let {who}" + (f" (so would {instead})" if instead else "")


class Limit(NamedTuple):
    """Where a limit is set, and to what; the least of it where devices have their own."""

    setting: str
    least: float
    words: str


def _limits(config: Config) -> Mapping[str, Limit]:
    fleet, found = fleet_columns(config), {}
    for name, setting in LIMITS.items():
        least, most = float(getattr(fleet, name).min()), float(getattr(fleet, name).max())
        if getattr(config.fleet, name) is None and least == most == getattr(terms_of(config), name):
            found[name] = Limit(setting, least, f"{least:g}")
        else:
            own = f"fleet.{name}" if config.fleet.file is None else f"{name} in fleet.file"
            found[name] = Limit(own, least, f"{least:g}" if least == most else f"{least:g} to {most:g}")
    return found


def _with(looked: list[Looked], **limits: float) -> list[Looked]:
    return [Looked(one.terms._replace(**limits), one.cases) for one in looked]


def _least(name: str, looked: list[Looked]) -> float:
    """The least value of one limit that admits the fleet, infinite where no value does."""
    free = _with(looked, **{name: UNLIMITED})
    per_device = [sorted(NEEDED[name](one.terms, case) for case in one.cases)[len(one.cases) // 2] for one in free]
    value = enough_for_most(per_device)
    if value == math.inf:
        return math.inf
    for rounded in rounded_up(value):
        if _share(_with(looked, **{name: rounded})) >= MOST:
            return rounded
    raise AssertionError("unreachable: the values grow for ever")


def _time_needed_s(free: Terms, case: Case) -> float:
    """At the largest power that C2 and C5 allow."""
    plan = optimal_plan(free, *case)
    return plan.compute_s + upload_time_s(free, case.gain, plan.max_power_w) if plan.feasible else math.inf


def _energy_needed_j(free: Terms, case: Case) -> float:
    """At the least power that ends in time."""
    plan = optimal_plan(free, *case)
    if not plan.feasible:
        return math.inf
    return plan.compute_j + upload_energy_j(plan.min_power_w, upload_time_s(free, case.gain, plan.min_power_w))


def _power_needed_w(free: Terms, case: Case) -> float:
    """The least power that ends in time."""
    plan = optimal_plan(free, *case)
    return plan.min_power_w if plan.feasible else math.inf


NEEDED: dict[str, Callable[[Terms, Case], float]] = {
    "max_time_s": _time_needed_s,
    "max_energy_j": _energy_needed_j,
    "max_power_w": _power_needed_w,
}


def _share(looked: list[Looked]) -> float:
    admitted = [sum(optimal_plan(one.terms, *case).feasible for case in one.cases) > len(one.cases) / 2 for one in looked]
    return sum(admitted) / len(admitted)


def _look(config: Config) -> list[Looked]:
    """Some devices and rounds of the run, evenly spread; of a run of few rounds also those that would follow."""
    fleet = fleet_columns(config)
    draws, rounds = Draws(config, fleet), _spread(1, max(config.run.rounds, ROUNDS_LOOKED_AT), ROUNDS_LOOKED_AT)
    round_s = config.objective.max_time_s / config.fleet.channels

    def case(device: int, round_: int) -> Case:
        draw = draws.draw(device, round_, round_ * round_s)
        return Case(draw.gain, draw.cpu_hz, float(draw.samples))

    devices = _spread(0, len(fleet.samples) - 1, DEVICES_LOOKED_AT)
    return [Looked(draws.terms_of(device), [case(device, round_) for round_ in rounds]) for device in devices]


def _spread(first: int, last: int, most: int) -> list[int]:
    count = min(most, last - first + 1)
    return [first + k * (last - first) // max(count - 1, 1) for k in range(count)]
