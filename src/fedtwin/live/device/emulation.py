"""A device that plays one of the simulator's: its channel, its CPU, its samples. Nobody else in a live fleet sees the truth."""

import zlib

from fedtwin.config import Config
from fedtwin.draws import Purpose, streams, uniform, word
from fedtwin.formulas.power import Plan, full_power_plan, no_answer, optimal_plan
from fedtwin.formulas.rate import path_gain
from fedtwin.formulas.terms import Terms, own_terms, terms_of
from fedtwin.live.device.radio import MOST_GAIN, Link
from fedtwin.world.fleet import make_fleet
from fedtwin.world.rayleigh import fading_gain
from fedtwin.world.words import WORDS_PER_ROUND
from fedtwin.world.world import World


def samples_of(config: Config, fleet_device: int) -> int:
    """D_n, how many samples device K of the run's fleet trains on."""
    return make_fleet(config)[fleet_device].samples


def spread_of(config: Config, fleet_device: int) -> float:
    """By which part of that its D_n(t) may stray."""
    return make_fleet(config)[fleet_device].samples_spread


def terms_of_device(config: Config, fleet_device: int) -> Terms:
    """With what is its own: its power, cycles, bits and limits."""
    return own_terms(terms_of(config), make_fleet(config)[fleet_device])


class EmulatedRadio:
    """The simulator's channel. As device K of the run's fleet it has that one's place and CPU, else a place of its own."""

    def __init__(self, config: Config, name: str, *, fleet_device: int | None, distance_m: float, full_power: bool) -> None:
        self._plan = full_power_plan if full_power else optimal_plan
        self._world = World(config) if fleet_device is not None else None
        self._device = fleet_device or 0
        self._start = int(streams(zlib.crc32(name.encode()), Purpose.WORLD, 1)[0])
        self._path_gain = path_gain(distance_m)

    def look(self, round_: int, clock_s: float = 0.0) -> Link:
        if self._world is not None:
            draw = self._world.draw(self._device, round_, clock_s)
            return Link(min(draw.gain, MOST_GAIN), "modelled", draw.cpu_hz, draw.available, draw.samples)
        gain = self._path_gain * fading_gain(uniform(word(self._start, WORDS_PER_ROUND * round_)))
        return Link(min(gain, MOST_GAIN), "modelled", None)

    def plan(self, terms: Terms, link: Link, cpu_hz: float, samples: int, model_bits: float) -> Plan:  # noqa: ARG002
        return self._plan(terms, link.gain, cpu_hz, samples) if link.available else no_answer()

    def at_full_power(self, terms: Terms, link: Link, cpu_hz: float, samples: int, model_bits: float) -> Plan:  # noqa: ARG002
        return full_power_plan(terms, link.gain, cpu_hz, samples)

    def air_s(self, plan: Plan) -> float:
        return plan.upload_s

    def learn(self, bits: float, seconds: float) -> None:
        pass

    @property
    def learned(self) -> bool:
        return False

    def forget(self) -> None:
        pass

    def doubt(self) -> None:
        pass
