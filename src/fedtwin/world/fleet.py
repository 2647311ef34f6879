"""The devices: drawn as in Section V, or read from the user's file."""

import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.compiling import can_compile, compiled, folder_of, keep_on_disk, stamp
from fedtwin.config import Config
from fedtwin.config.fleet_csv import read_fleet_csv
from fedtwin.draws import Purpose, streams, uniform, word
from fedtwin.formulas.rate import path_gain as path_gain_at

DISTANCE, CPU, SAMPLES = range(3)
LARGE = 20_000


class Device(NamedTuple):
    """What never changes of one device. ``distance_m`` is NaN where the user gave a path gain only."""

    distance_m: float
    path_gain: float
    cpu_hz_mean: float
    samples: int


class FleetColumns(NamedTuple):
    """The fleet as arrays, one per field of ``Device``, and the names its owner gave the devices, if any."""

    distance_m: NDArray[np.float64]
    path_gain: NDArray[np.float64]
    cpu_hz_mean: NDArray[np.float64]
    samples: NDArray[np.int64]
    names: tuple[str, ...] | None = None

    @property
    def numbers(self) -> tuple[NDArray[Any], ...]:
        """What ``Device`` has."""
        return self.distance_m, self.path_gain, self.cpu_hz_mean, self.samples


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
        return _from_file(Path(config.fleet.file))
    starts = streams(config.run.seed, Purpose.PLACEMENT, config.fleet.devices)
    fleet, compute = config.fleet, config.compute
    ranges = Ranges(
        fleet.min_distance_m, fleet.radius_m, compute.cpu_hz_min, compute.cpu_hz_max, fleet.samples_min, fleet.samples_max
    )
    if len(starts) < LARGE or not can_compile():
        return _columns(len(starts), (draw_device(int(start), ranges) for start in starts))
    columns = _columns(len(starts), ())
    _compiled_draw()(starts, ranges, *columns.numbers)
    return columns


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


def _columns(count: int, devices: Iterable[Device]) -> FleetColumns:
    columns = FleetColumns(np.empty(count), np.empty(count), np.empty(count), np.empty(count, np.int64))
    for n, device in enumerate(devices):
        for column, value in zip(columns.numbers, device, strict=True):
            column[n] = value
    return columns


def largest_min_mean_samples(config: Config, samples: Iterable[int]) -> float:
    """The largest D_min that C1 might allow: one device a round (M in a synchronous one) gives 1 / Σ 1/D_n, or M times that."""
    per_round = config.fleet.channels if config.run.mode == "sync" else 1
    return per_round / math.fsum(1.0 / number for number in samples)


def draw_device(start: int, ranges: Ranges) -> Device:
    """One device from its stream: uniform by area, uniform in frequency and samples (Section V)."""
    nearest2, farthest2 = ranges.min_distance_m * ranges.min_distance_m, ranges.radius_m * ranges.radius_m
    distance_m = math.sqrt(nearest2 + uniform(word(start, DISTANCE)) * (farthest2 - nearest2))
    cpu_hz_mean = ranges.cpu_hz_min + uniform(word(start, CPU)) * (ranges.cpu_hz_max - ranges.cpu_hz_min)
    numbers = ranges.samples_max - ranges.samples_min + 1
    samples = ranges.samples_min + math.floor(uniform(word(start, SAMPLES)) * numbers)
    return Device(distance_m, path_gain_at(distance_m), cpu_hz_mean, samples)


def _from_file(path: Path) -> FleetColumns:
    devices, rows = [], read_fleet_csv(path)
    for row in rows:
        distance_m = math.nan if row.distance_m is None else row.distance_m
        gain = path_gain_at(distance_m) if row.path_gain is None else row.path_gain
        devices.append(Device(distance_m, gain, row.cpu_hz_mean, row.samples))
    names = tuple(row.name for row in rows if row.name is not None)
    return _columns(len(devices), devices)._replace(names=names or None)
