"""What the devices of a sampled world meet: fading of any depth, and questions that stay without an answer."""

import math
from typing import Annotated, NamedTuple

from pydantic import Field

from fedtwin.draws import uniform, word
from fedtwin.world.parts import Availability, Channel, Moment

TRIES = 20
WORDS_PER_ROUND = 1 + 3 * TRIES
DEEPEST_FADE = 1e-12
LEAST_SHAPE, MOST_SHAPE = 0.05, 1e6


class Depth(NamedTuple):
    """m of Nakagami's fading: 1 is Rayleigh's, more is steadier."""

    shape: Annotated[float, Field(ge=LEAST_SHAPE, le=MOST_SHAPE)] = 1.0


class Silence(NamedTuple):
    """How often a device does not answer."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.0


def fading_gain(at: Moment, shape: float) -> float:
    """|g|² ~ Gamma with mean 1, drawn anew in every round (Marsaglia and Tsang, ACM TOMS 26, 2000).

    A try is taken in more than 95 of 100 cases, so twenty are never all in vain.
    """
    first = WORDS_PER_ROUND * at.round
    boost, larger = 1.0, shape
    if shape < 1.0:
        boost, larger = math.exp(math.log(uniform(word(at.stream, first))) / shape), shape + 1.0
    d = larger - 1.0 / 3.0
    found = d
    for k in range(TRIES):
        place = first + 1 + 3 * k
        uniform1, uniform2 = uniform(word(at.stream, place)), uniform(word(at.stream, place + 1))
        normal = math.sqrt(-2.0 * math.log(uniform1)) * math.cos(2.0 * math.pi * uniform2)
        root = 1.0 + normal / math.sqrt(9.0 * d)
        if root > 0.0:
            cube = root * root * root
            if math.log(uniform(word(at.stream, place + 2))) < 0.5 * normal * normal + d - d * cube + d * math.log(cube):
                found = d * cube
                break
    return boost * found / shape


def gain(at: Moment, path_gain: float, settings: Depth) -> float:
    """h_n(t) = mean gain · |g|²; a fade that is deeper than 120 dB is one of 120 dB."""
    return path_gain * max(fading_gain(at, settings.shape), DEEPEST_FADE)


def available(at: Moment, settings: Silence) -> bool:
    """Independent from round to round and from device to device."""
    return uniform(word(at.stream, at.round)) >= settings.share


CHANNEL = Channel(gain, settings=Depth)
AVAILABILITY = Availability(available, settings=Silence)
