"""The paper's load, Section V: a CPU frequency that is normal around the device's mean, drawn anew in every round."""

import math
from typing import Any

from fedtwin.draws import Purpose, uniform, word
from fedtwin.world.parts import Load, Moment, Processor
from fedtwin.world.words import WORDS_PER_ROUND


def cpu_frequency_hz(mean_hz: float, std_hz: float, floor_hz: float, uniform1: float, uniform2: float) -> float:
    """f_n(t) ~ Normal(mean, std) clipped at the floor, from two uniform numbers in (0, 1) by Box and Muller."""
    normal = math.sqrt(-2.0 * math.log(uniform1)) * math.cos(2.0 * math.pi * uniform2)
    return max(mean_hz + std_hz * normal, floor_hz)


def cpu_hz(at: Moment, processor: Processor, settings: Any) -> float:  # noqa: ARG001
    first = WORDS_PER_ROUND * at.round
    uniform1, uniform2 = uniform(word(at.stream, first + 1)), uniform(word(at.stream, first + 2))
    return cpu_frequency_hz(processor.mean_hz, processor.std_hz, processor.floor_hz, uniform1, uniform2)


LOAD = Load(cpu_hz, purpose=Purpose.WORLD)
