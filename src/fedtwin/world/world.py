"""The world a run meets: a pure function of (seed, device, round), the same for every policy."""

import math
from typing import NamedTuple

from fedtwin.config import Config
from fedtwin.draws import Purpose, streams, uniform, word
from fedtwin.formulas.terms import terms_of
from fedtwin.world.fleet import make_fleet

WORDS_PER_ROUND = 3


class Draw(NamedTuple):
    """The channel gain h_n(t) and the CPU frequency f_n(t) of one device in one round."""

    gain: float
    cpu_hz: float


def fading_gain(uniform: float) -> float:
    """|g|² of a normalised Rayleigh channel: exponential with mean 1, from one uniform number in (0, 1)."""
    return -math.log(uniform)


def cpu_frequency_hz(mean_hz: float, std_hz: float, floor_hz: float, uniform1: float, uniform2: float) -> float:
    """f_n(t) ~ Normal(mean, std) clipped at the floor, from two uniform numbers in (0, 1) by Box and Muller."""
    normal = math.sqrt(-2.0 * math.log(uniform1)) * math.cos(2.0 * math.pi * uniform2)
    return max(mean_hz + std_hz * normal, floor_hz)


def draw_round(start: int, round_: int, path_gain: float, cpu_hz_mean: float, std_hz: float, floor_hz: float) -> Draw:
    """Rayleigh fading on the path gain, and a normal CPU frequency, as Section V has them; ``start`` is the device's stream."""
    first = WORDS_PER_ROUND * round_
    fading = uniform(word(start, first))
    cpu_hz = cpu_frequency_hz(cpu_hz_mean, std_hz, floor_hz, uniform(word(start, first + 1)), uniform(word(start, first + 2)))
    return Draw(path_gain * fading_gain(fading), cpu_hz)


class World:
    """Fleet, constants, and the draws of every device and round."""

    def __init__(self, config: Config) -> None:
        self.fleet = make_fleet(config)
        self.terms = terms_of(config)
        self._std_hz = config.compute.cpu_hz_std
        self._floor_hz = config.compute.cpu_hz_floor
        self._starts = [int(start) for start in streams(config.run.seed, Purpose.WORLD, len(self.fleet))]

    def draw(self, device: int, round_: int) -> Draw:
        """What the device finds in the round."""
        known = self.fleet[device]
        return draw_round(self._starts[device], round_, known.path_gain, known.cpu_hz_mean, self._std_hz, self._floor_hz)
