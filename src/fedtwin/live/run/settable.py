"""What can be changed while a run goes on, and what follows from a change beside the new value itself."""

from collections.abc import Mapping
from typing import Any

from fedtwin.config import Config, replace_settings
from fedtwin.errors import FedtwinError
from fedtwin.formulas.cost import cost
from fedtwin.learning.aggregation import aggregation_of
from fedtwin.learning.passed_over import why_unread
from fedtwin.learning.rates import with_the_rounds_of_boards
from fedtwin.live.run.facts import Facts
from fedtwin.live.run.round import LEAST_COST_OF_NOTHING
from fedtwin.twin.update import grown_otherwise, recharged

LIMITS = ("max_time_s", "max_energy_j")
FAR_BELOW = 100.0


def _nothing_more(facts: Facts) -> None:
    """The value is all there is."""


def _costs_anew(facts: Facts) -> None:
    """Every learned mean cost is what it would be, had the weights and limits of now held from the beginning."""
    coordinator = facts.coordinator
    for device, known in enumerate(coordinator.twin.devices):
        terms = facts.terms_of(device)
        least = sum(max(LEAST_COST_OF_NOTHING - cost(terms, *spent), 0.0) for spent in facts.nothings.get(device, ()))
        charged = cost(terms, known.time_sum_s, known.energy_sum_j) + least
        coordinator.twin = recharged(coordinator.twin, device, charged)


def _queues_grow_otherwise(facts: Facts) -> None:
    """By the new D_min from the oldest round that is open, or the next one; until then as they did."""
    coordinator = facts.coordinator
    since = min(facts.asking.rounds, default=coordinator.round + (facts.current is None))
    coordinator.twin = grown_otherwise(coordinator.twin, since, facts.config.objective.min_mean_samples)


SETTABLE = {
    "run.rounds": _nothing_more,
    "policy.v": _nothing_more,
    "objective.min_mean_samples": _queues_grow_otherwise,
    "objective.energy_weight": _costs_anew,
    "objective.max_time_s": _costs_anew,
    "objective.max_energy_j": _costs_anew,
    "learning.learning_rate": _nothing_more,
    "learning.mixing": _nothing_more,
    "learning.staleness_exponent": _nothing_more,
    "learning.hinge_a": _nothing_more,
    "learning.hinge_b": _nothing_more,
    "live.stop_after_s": _nothing_more,
    "live.stop_at_metric": _nothing_more,
    "live.stop_without_progress": _nothing_more,
}
FOR_DEVICES = ("learning.learning_rate",)
"""Devices get these with the settings; what holds for one update is in the question."""


def is_for_devices(config: Config, setting: str) -> bool:
    """Whether devices have to know of a change: of the run's rounds too, where their learning rate falls over these."""
    learning = config.learning
    falls = learning is not None and learning.rate_schedule != "constant" and not learning.rate_rounds
    return setting in FOR_DEVICES or (setting == "run.rounds" and falls)


OF_THE_RULE = ("learning.mixing", "learning.staleness_exponent", "learning.hinge_a", "learning.hinge_b")


def check_settable(config: Config, setting: str, value: Any) -> None:
    """Whether the setting can be changed while the run goes on, to this value; one sentence where not."""
    if setting not in SETTABLE:
        raise FedtwinError(f"{setting} cannot be changed while the run goes on: what can is {', '.join(SETTABLE)}.")
    if setting.startswith("learning.") and config.learning is None:
        raise FedtwinError(f"{setting} cannot be changed: the run has no [learning].")
    if not isinstance(value, int | float):
        raise FedtwinError(f"{setting} = {value!r} is not allowed: it must be a number.")
    changed = config_with(config, {setting: value})
    if setting in OF_THE_RULE and (why := why_unread(changed, aggregation_of(changed), setting.partition(".")[2])):
        raise FedtwinError(f"{setting} = {value} would change nothing: it is {why}.")


def check_limit(facts: Facts, setting: str, value: float) -> None:
    """A limit far below what updates take would keep everyone out, and those in flight would be charged beyond all measure."""
    if setting not in ("objective.max_time_s", "objective.max_energy_j"):
        return
    seen = [known for known in facts.coordinator.twin.devices if known.observations] if facts.started else []
    if seen:
        sums = [known.time_sum_s if setting.endswith("_s") else known.energy_sum_j for known in seen]
        least = min(spent / known.observations for spent, known in zip(sums, seen, strict=True))
        why = f"updates take {least:.3g} and more here"
    else:
        least = getattr(facts.config.objective, setting.removeprefix("objective."))
        why = f"it is {least:.3g} now, and no update has been seen yet"
    if value < least / FAR_BELOW:
        raise FedtwinError(f"{setting} = {value} is not allowed: {why}, so it must be at least {least / FAR_BELOW:.3g}.")


def config_with(config: Config, changed: Mapping[str, Any]) -> Config:
    """The settings with what was changed since; a limit that a person has set is not taken from the fleet any more."""
    if not changed:
        return config
    of_fleet = config.live.limits_from_fleet if config.live is not None else None
    if of_fleet:
        left = [name for name in of_fleet if f"objective.{name}" not in changed]
        changed = {**changed, "live.limits_from_fleet": left}
    return replace_settings(config, changed)


def config_for_devices(config: Config, changed: Mapping[str, Any]) -> Config:
    """What they join with: as at the beginning, but for what they have to know, and with the rate's rounds of this fleet."""
    found = config_with(config, {setting: value for setting, value in changed.items() if is_for_devices(config, setting)})
    return with_the_rounds_of_boards(found)
