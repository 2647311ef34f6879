"""The paper's channel, Section V: Rayleigh fading on the path gain, drawn anew in every round."""

import math
from typing import Any

from fedtwin.draws import Purpose, uniform, word
from fedtwin.world.parts import Channel, Moment
from fedtwin.world.words import WORDS_PER_ROUND


def fading_gain(uniform: float) -> float:
    """|g|² of a normalised Rayleigh channel: exponential with mean 1, from one uniform number in (0, 1)."""
    return -math.log(uniform)


def gain(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    """h_n(t) = path gain · |g|²."""
    return path_gain * fading_gain(uniform(word(at.stream, WORDS_PER_ROUND * at.round)))


CHANNEL = Channel(gain, purpose=Purpose.WORLD)
