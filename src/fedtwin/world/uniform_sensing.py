"""How many samples a device has sensed for a round: as many as ever, or a number around that, drawn anew in every round."""

import math
from typing import Any

from fedtwin.draws import uniform, word
from fedtwin.formulas.compute import most_stray
from fedtwin.world.parts import Moment, Sensing, Sensor


def samples(at: Moment, sensor: Sensor, settings: Any) -> float:  # noqa: ARG001
    """D_n(t), each whole number from D_n (1 − spread) to D_n (1 + spread) alike; D_n itself where the spread is 0."""
    reach = most_stray(sensor.mean, sensor.spread)
    if reach == 0:
        return sensor.mean
    return sensor.mean - reach + math.floor(uniform(word(at.stream, at.round)) * float(2 * reach + 1))


SENSING = Sensing(samples)
