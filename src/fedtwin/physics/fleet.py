"""The devices: drawn as in Section V, or read from the user's file."""

import math
from pathlib import Path
from typing import NamedTuple

from fedtwin.config import Config
from fedtwin.config.fleet_csv import read_fleet_csv
from fedtwin.draws import Purpose, streams, uniform, word
from fedtwin.physics.channel import path_gain

DISTANCE, CPU, SAMPLES = range(3)


class Device(NamedTuple):
    """What never changes of one device. ``distance_m`` is NaN where the user gave a path gain only."""

    distance_m: float
    path_gain: float
    cpu_hz_mean: float
    samples: int


def make_fleet(config: Config) -> list[Device]:
    """Device n of the fleet depends on (seed, n) only: a larger fleet with the same seed begins with the same devices."""
    if config.fleet.file is not None:
        return _from_file(Path(config.fleet.file))
    starts = streams(config.run.seed, Purpose.PLACEMENT, config.fleet.devices)
    return [_draw(config, int(start)) for start in starts]


def largest_min_mean_samples(config: Config, fleet: list[Device]) -> float:
    """The largest D_min that C1 might allow: one device a round (M in a synchronous one) gives 1 / Σ 1/D_n, or M times that."""
    per_round = config.fleet.channels if config.run.mode == "sync" else 1
    return per_round / math.fsum(1.0 / device.samples for device in fleet)


def _draw(config: Config, start: int) -> Device:
    fleet, compute = config.fleet, config.compute
    nearest2, farthest2 = fleet.min_distance_m**2, fleet.radius_m**2
    distance_m = math.sqrt(nearest2 + uniform(word(start, DISTANCE)) * (farthest2 - nearest2))
    cpu_hz_mean = compute.cpu_hz_min + uniform(word(start, CPU)) * (compute.cpu_hz_max - compute.cpu_hz_min)
    samples = fleet.samples_min + math.floor(uniform(word(start, SAMPLES)) * (fleet.samples_max - fleet.samples_min + 1))
    return Device(distance_m, path_gain(distance_m), cpu_hz_mean, samples)


def _from_file(path: Path) -> list[Device]:
    devices = []
    for row in read_fleet_csv(path):
        distance_m = math.nan if row.distance_m is None else row.distance_m
        gain = path_gain(distance_m) if row.path_gain is None else row.path_gain
        devices.append(Device(distance_m, gain, row.cpu_hz_mean, row.samples))
    return devices
