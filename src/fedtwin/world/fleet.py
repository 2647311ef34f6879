"""The devices: drawn as in Section V, or read from the user's file."""

import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.compiling import can_compile, compiled, folder_of, keep_on_disk, stamp
from fedtwin.config import Config
from fedtwin.config.fleet_csv import OWN, read_fleet_csv
from fedtwin.draws import Purpose, streams, uniform, word
from fedtwin.formulas.compute import most_stray
from fedtwin.formulas.rate import path_gain as path_gain_at
from fedtwin.formulas.terms import Quantities, Terms, epochs_charged, terms_of

DISTANCE, CPU, SAMPLES = range(3)
WORD_OF = {name: number for number, name in enumerate((*Quantities._fields, "samples_spread"), start=SAMPLES + 1)}
"""The words of a device's stream of which it is drawn. Those of its own quantities came later, so they follow."""
LARGE = 20_000

Floats = NDArray[np.float64]


class Drawn(NamedTuple):
    """What Section V draws of a device."""

    distance_m: float
    path_gain: float
    cpu_hz_mean: float
    samples: int


class Device(NamedTuple):
    """What never changes of one device. ``distance_m`` is NaN where the user gave a path gain only.

    ``samples`` is D_n, from which D_n(t) strays by ``samples_spread``; what follows is in place of the configured value.
    """

    distance_m: float
    path_gain: float
    cpu_hz_mean: float
    samples: int
    max_power_w: float
    cycles_per_sample: float
    update_bits: float
    max_time_s: float
    max_energy_j: float
    samples_spread: float

    @property
    def least_samples(self) -> int:
        """The smallest D_n(t) by that."""
        return self.samples - most_stray(self.samples, self.samples_spread)


class FleetColumns(NamedTuple):
    """The fleet as arrays, one per field of ``Device``, and the names its owner gave the devices, if any.

    A column that is as configured for everybody is one number in memory.
    """

    distance_m: Floats
    path_gain: Floats
    cpu_hz_mean: Floats
    samples: NDArray[np.int64]
    max_power_w: Floats
    cycles_per_sample: Floats
    update_bits: Floats
    max_time_s: Floats
    max_energy_j: Floats
    samples_spread: Floats
    names: tuple[str, ...] | None = None

    @property
    def numbers(self) -> tuple[NDArray[Any], ...]:
        """What ``Device`` has."""
        return tuple(getattr(self, name) for name in Device._fields)

    def has_own(self, terms: Terms) -> bool:
        """Whether anybody has other quantities than these."""
        return any(bool((getattr(self, name) != getattr(terms, name)).any()) for name in Quantities._fields)


class Ranges(NamedTuple):
    """Between which bounds a device is drawn."""

    min_distance_m: float
    radius_m: float
    cpu_hz_min: float
    cpu_hz_max: float
    samples_min: int
    samples_max: int


def make_fleet(config: Config) -> list[Device]:
    """Device n of the fleet depends on (seed, n) only: a larger fleet with the same seed begins with the same devices."""
    columns = fleet_columns(config)
    return [Device(*row) for row in zip(*(column.tolist() for column in columns.numbers), strict=True)]


def fleet_columns(config: Config) -> FleetColumns:
    """The same fleet as arrays; a large one is drawn by compiled code, where that is installed."""
    if config.fleet.file is not None:
        return _from_file(config, Path(config.fleet.file))
    starts = streams(config.run.seed, Purpose.PLACEMENT, config.fleet.devices)
    fleet, compute = config.fleet, config.compute
    ranges = Ranges(
        fleet.min_distance_m, fleet.radius_m, compute.cpu_hz_min, compute.cpu_hz_max, fleet.samples_min, fleet.samples_max
    )
    columns = _empty(len(starts))
    if len(starts) < LARGE or not can_compile():
        _fill(columns, (draw_device(int(start), ranges) for start in starts))
    else:
        _compiled_draw()(starts, ranges, *columns)
    drawn = {name: _uniform(starts, name, *pair) for name in OWN if (pair := getattr(fleet, name)) is not None}
    return _with_own(config, columns, drawn)


def _uniform(starts: Any, name: str, least: float, most: float) -> Floats:
    """Of every device, from the word of its stream that is for it."""
    numbers: Floats = least + uniform(word(starts, WORD_OF[name])) * (most - least)  # type: ignore[assignment]
    return np.minimum(numbers, most)


def _with_own(config: Config, columns: "Columns", own: Mapping[str, Floats]) -> FleetColumns:
    """What is not a device's own is as configured. Its own c_n, too, is paid for every epoch, where epochs are charged."""
    terms, count = terms_of(config), len(columns[0])
    if "cycles_per_sample" in own:
        own = {**own, "cycles_per_sample": own["cycles_per_sample"] * epochs_charged(config)}
    configured = {name: getattr(terms, name) for name in Quantities._fields} | {"samples_spread": 0.0}
    found = [own.get(name, np.broadcast_to(value, count)) for name, value in configured.items()]
    return FleetColumns._make([*columns, *found, None])


@cache
def _compiled_draw() -> Any:
    return keep_on_disk(compiled(draw_devices), folder_of("fleet", stamp(draw_devices)), "the drawing of large fleets")


def draw_devices(
    starts: Any,
    ranges: Ranges,
    distance_m: NDArray[np.float64],
    path_gain: NDArray[np.float64],
    cpu_hz_mean: NDArray[np.float64],
    samples: NDArray[np.int64],
) -> None:
    """Fills the columns; meant to be compiled."""
    for n in range(len(starts)):
        device = draw_device(starts[n], ranges)
        distance_m[n], path_gain[n] = device.distance_m, device.path_gain
        cpu_hz_mean[n], samples[n] = device.cpu_hz_mean, device.samples


Columns = tuple[Floats, Floats, Floats, NDArray[np.int64]]


def _empty(count: int) -> Columns:
    return np.empty(count), np.empty(count), np.empty(count), np.empty(count, np.int64)


def _fill(columns: Columns, devices: Iterable[Drawn]) -> None:
    for n, device in enumerate(devices):
        for column, value in zip(columns, device, strict=True):
            column[n] = value


def largest_min_mean_samples(config: Config, samples: Iterable[int]) -> float:
    """The largest D_min that C1 might allow: one device a round (M in a synchronous one) gives 1 / Σ 1/D_n, or M times that."""
    per_round = config.fleet.channels if config.run.mode == "sync" else 1
    return per_round / math.fsum(1.0 / number for number in samples)


def draw_device(start: int, ranges: Ranges) -> Drawn:
    """One device from its stream: uniform by area, uniform in frequency and samples (Section V)."""
    nearest2, farthest2 = ranges.min_distance_m * ranges.min_distance_m, ranges.radius_m * ranges.radius_m
    distance_m = math.sqrt(nearest2 + uniform(word(start, DISTANCE)) * (farthest2 - nearest2))
    cpu_hz_mean = ranges.cpu_hz_min + uniform(word(start, CPU)) * (ranges.cpu_hz_max - ranges.cpu_hz_min)
    numbers = ranges.samples_max - ranges.samples_min + 1
    samples = ranges.samples_min + math.floor(uniform(word(start, SAMPLES)) * numbers)
    return Drawn(distance_m, path_gain_at(distance_m), cpu_hz_mean, samples)


def _from_file(config: Config, path: Path) -> FleetColumns:
    devices, rows = [], read_fleet_csv(path)
    for row in rows:
        distance_m = math.nan if row.distance_m is None else row.distance_m
        gain = path_gain_at(distance_m) if row.path_gain is None else row.path_gain
        devices.append(Drawn(distance_m, gain, row.cpu_hz_mean, row.samples))
    columns = _empty(len(devices))
    _fill(columns, devices)
    own = {name: np.array([row.own[name] for row in rows]) for name in OWN if name in rows[0].own}
    names = tuple(row.name for row in rows if row.name is not None)
    return _with_own(config, columns, own)._replace(names=names or None)
