"""The other settings of a what-if, laid over a fork: what follows from each, as a live run would have it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedtwin.config import Config, beside, replace_settings
from fedtwin.errors import FedtwinError
from fedtwin.formulas.cost import cost
from fedtwin.formulas.terms import Quantities, Terms, terms_of
from fedtwin.given import settings_given, whole_number
from fedtwin.twin.update import grown_otherwise, joined, recharged, with_status
from fedtwin.whatif.fork import Fork

SETTABLE = (
    *("policy.name", "policy.v", "policy.bonus_scale", "policy.power", "objective.energy_weight", "objective.max_time_s"),
    *("objective.max_energy_j", "objective.min_mean_samples", "radio.max_power_w", "fleet.channels", "run.sync_timeout_s"),
)
OF_THE_POLICY = "policy.settings."
MOST_ADDED = 100_000


def changed(fork: Fork, settings: Mapping[str, Any], without: Sequence[int | str], add: int) -> Fork:
    """The fork under other settings, without some devices and with some more."""
    settings = settings_given("set", settings)
    for name in settings:
        if name not in SETTABLE and not str(name).startswith(OF_THE_POLICY):
            raise FedtwinError(f"{name} is not for a what-if: what can be set is {', '.join(SETTABLE)} and {OF_THE_POLICY}KEY.")
    new = _config_with(fork.config, settings)
    if new.run.mode != fork.config.run.mode:
        raise FedtwinError(
            f"policy.name = {settings['policy.name']!r} is for run.mode = {new.run.mode!r}, and a what-if keeps the mode "
            f"of its run, {fork.config.run.mode!r}."
        )
    fork = _with_config(fork, new)
    fork = _without(fork, _devices_given(without, fork.names))
    fork = _with_more(fork, _added_given(add))
    return _within_channels(fork)


def _config_with(config: Config, settings: Mapping[str, Any]) -> Config:
    """What a policy declares for itself is not for another one."""
    if not settings:
        return config
    if settings.get("policy.name", config.policy.name) != config.policy.name:
        config = config.model_copy(update={"policy": config.policy.model_copy(update={"settings": {}})})
    new = replace_settings(config, settings)
    return beside(new, Path.cwd()) if "policy.name" in settings and new.code.folder is None else new


def _with_config(fork: Fork, new: Config) -> Fork:
    """Queues grow by another D_min from the next round on; costs that were learned are expressed by the weights of now."""
    old_terms, terms, twin = terms_of(fork.config), terms_of(new), fork.twin
    own = {
        name: np.where(fork.own[name] == getattr(old_terms, name), getattr(terms, name), fork.own[name])
        for name in Quantities._fields
    }
    if new.objective.min_mean_samples != twin.min_mean_samples:
        twin = grown_otherwise(twin, fork.round + 1, new.objective.min_mean_samples)
    fork = replace(fork, config=new, own=own, twin=twin, notes=(*fork.notes, *_kept_by_devices(own, old_terms, terms)))
    if old_terms == terms:
        return fork
    for device, known in enumerate(twin.devices):
        if known.observations:
            twin = recharged(twin, device, cost(fork.terms_of(device), known.time_sum_s, known.energy_sum_j))
    flights = [one._replace(cost=cost(fork.terms_of(one.device), one.time_s, one.energy_j)) for one in fork.flights]
    return replace(fork, twin=twin, flights=tuple(flights))


def _kept_by_devices(own: Mapping[str, Any], old_terms: Terms, terms: Terms) -> list[str]:
    """A limit that is a device's own does not change with everybody's."""
    notes = []
    for name in Quantities._fields:
        kept = int((own[name] != getattr(terms, name)).sum())
        if getattr(old_terms, name) != getattr(terms, name) and kept:
            notes.append(f"{kept} of {len(own[name])} devices have a {name} of their own, and keep it.")
    return notes


def _devices_given(without: Sequence[int | str], names: Sequence[str]) -> tuple[int, ...]:
    """Numbers of devices, or their names; ``device-7`` is number 7 where devices have none."""
    if isinstance(without, str | bytes) or not isinstance(without, Sequence):
        raise FedtwinError(f"without = {without!r} is not allowed: it must be a list of devices, by number or name.")
    found = set()
    for one in without:
        number = whole_number(one)
        if isinstance(one, str):
            number = names.index(one) if one in names else int(one) if one.isascii() and one.isdecimal() else None
        if number is None or not 0 <= number < len(names):
            some = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            raise FedtwinError(f"without = {one!r}: there is no such device, there are 0 to {len(names) - 1} ({some}).")
        found.add(number)
    return tuple(sorted(found))


def _added_given(add: Any) -> int:
    number = whole_number(add)
    if number is None or not 0 <= number <= MOST_ADDED:
        raise FedtwinError(f"add = {add!r} is not allowed: it must be a number of devices, from 0 to {MOST_ADDED}.")
    return number


def _without(fork: Fork, lost: tuple[int, ...]) -> Fork:
    """Lost devices are asked no more, and what they have under way does not come."""
    twin = fork.twin
    for device in lost:
        twin = with_status(twin, device, "offline")
    flights = tuple(one for one in fork.flights if one.device not in lost)
    freed = len(flights) < len(fork.flights)
    return replace(fork, twin=twin, flights=flights, lost=lost, waiting=fork.waiting and not freed)


def _with_more(fork: Fork, add: int) -> Fork:
    """Each like some device of the fleet; it loses ties against those before it. Its samples are drawn with its world."""
    twin, count = fork.twin, fork.devices
    for _ in range(add):
        twin = joined(twin, 1, fork.round + 1, fork.clock_s)
    terms = terms_of(fork.config)
    return replace(
        fork,
        config=fork.config.model_copy(update={"fleet": fork.config.fleet.model_copy(update={"devices": count + add})}),
        twin=twin,
        ranks=(*fork.ranks, *range(count, count + add)),
        names=(*fork.names, *(f"device-{count + k}" for k in range(add))),
        own={name: np.append(column, np.full(add, getattr(terms, name))) for name, column in fork.own.items()},
        samples=np.append(fork.samples, np.ones(add, np.int64)),
        added=add,
    )


def _within_channels(fork: Fork) -> Fork:
    """No more channels than devices that could take one."""
    there = sum(device.status in ("idle", "in-flight") for device in fork.twin.devices)
    if there == 0:
        raise FedtwinError("Nobody is left to be asked: without leaves at least one device that is there.")
    notes, fleet = fork.notes, fork.config.fleet
    if fleet.channels > there:
        notes = (*notes, f"Only {there} devices can be asked, so {there} of the {fleet.channels} channels are used.")
        fleet = fleet.model_copy(update={"channels": there})
    waiting = fork.waiting and not (len(fork.flights) < fleet.channels and _was_full(fork))
    return replace(fork, config=fork.config.model_copy(update={"fleet": fleet}), waiting=waiting, notes=notes)


def _was_full(fork: Fork) -> bool:
    """It waits for an upload, not for somebody who does not decline."""
    return not (len(fork.rows) and bool(fork.rows.declined[-1]))
