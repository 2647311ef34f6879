"""Worlds that a fork is played on: sampled from what is known, or, where that is asked for, the run's own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.terms import Quantities
from fedtwin.runs import Run
from fedtwin.runs.rows import Floats
from fedtwin.twin import Fact
from fedtwin.whatif.fork import Fork
from fedtwin.whatif.heard import spreads_of
from fedtwin.whatif.knowledge import Knowledge, Sampled
from fedtwin.world.fleet import Device, FleetColumns, fleet_columns
from fedtwin.world.world import Draws, World

PARTS = "fedtwin.whatif.parts"


@dataclass(frozen=True)
class OneWorld:
    """Settings, devices, and the seed of everything that is drawn anew from round to round; and whence, if it was sampled."""

    config: Config
    fleet: FleetColumns
    seed: int
    sampled: Sampled | None = None


class GivenWorld(World):
    """Of these devices, from this seed."""

    def __init__(self, one: OneWorld) -> None:
        run = one.config.run.model_copy(update={"seed": one.seed})
        Draws.__init__(self, one.config.model_copy(update={"run": run}), one.fleet)
        self.fleet = [Device(*row) for row in zip(*(column.tolist() for column in one.fleet.numbers), strict=True)]


def sampled_worlds(fork: Fork, knowledge: Knowledge, count: int, seed: int) -> Iterator[OneWorld]:
    """The same seed gives the same worlds, whatever the settings of the fork."""
    spreads = spreads_of(fork.rows, np.maximum(fork.samples, 1).astype(np.float64))
    for random in np.random.default_rng(seed).spawn(count):
        sampled = knowledge.sample(random)
        world_seed = int(random.integers(2**63))
        yield OneWorld(_config(fork, sampled), _fleet(fork, sampled, spreads, random), world_seed, sampled)


def true_world(fork: Fork, run: Run) -> OneWorld:
    """The world of a simulation, which no server knows."""
    if fork.live:
        raise FedtwinError(f"true_world = True: {str(run.path)!r} is a live run, and nobody knows the world it will meet.")
    if fork.added:
        raise FedtwinError(f"true_world = True knows nothing of devices that are not there: add = {fork.added} must be 0.")
    fleet, written = fleet_columns(run.config), run.devices
    same = all(np.array_equal(getattr(fleet, name), written[name].to_numpy()) for name in ("path_gain", "cpu_hz_mean"))
    if not same:
        raise FedtwinError(f"true_world = True: the devices of {str(run.path)!r} are not those that its settings give now.")
    return OneWorld(fork.config, fleet._replace(**fork.own), run.config.run.seed)


def in_world(fork: Fork, one: OneWorld) -> Fork:
    """New devices have announced the samples that they have there."""
    if not fork.added:
        return fork
    first, fleet = fork.devices - fork.added, one.fleet
    new = [
        known._replace(samples=Fact(float(fleet.samples[first + k]), fork.clock_s, "configured"))
        for k, known in enumerate(fork.twin.devices[first:])
    ]
    return replace(fork, twin=fork.twin._replace(devices=(*fork.twin.devices[:first], *new)))


def _config(fork: Fork, sampled: Sampled) -> Config:
    config = fork.config
    silent = sampled.silence > 0.0
    world = {
        "channel": f"{PARTS}:CHANNEL",
        "channel_settings": {"shape": sampled.shape},
        "load": "normal",
        "load_settings": {},
        "availability": f"{PARTS}:AVAILABILITY" if silent else "always",
        "availability_settings": {"share": sampled.silence} if silent else {},
        "sensing": "uniform",
        "sensing_settings": {},
    }
    compute = {"cpu_hz_std": sampled.cpu_hz_std, "cpu_hz_floor": sampled.cpu_hz_floor}
    return config.model_copy(
        update={"world": config.world.model_copy(update=world), "compute": config.compute.model_copy(update=compute)}
    )


def _fleet(fork: Fork, sampled: Sampled, spreads: Floats, random: np.random.Generator) -> FleetColumns:
    """A new device has the samples, and what may be its own, of some device that is there."""
    count, first = fork.devices, fork.devices - fork.added
    like = np.append(np.arange(first), random.integers(first, size=fork.added))
    now = np.array([device.samples.value for device in fork.twin.devices[:first]])
    samples = np.where(spreads[:first] > 0.0, fork.samples[:first], now).astype(np.int64)
    own = [fork.own[name][like] for name in Quantities._fields]
    places = np.full(count, np.nan), sampled.path_gain, sampled.cpu_hz_mean
    return FleetColumns._make([*places, samples[like], *own, spreads[:first][like], None])
