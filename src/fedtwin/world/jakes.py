"""A channel that is correlated in time: Rayleigh fading as a sum of sinusoids, one for every path (Clarke 1968, Jakes 1974)."""

import math
from typing import Annotated, NamedTuple

from pydantic import Field

from fedtwin.draws import uniform, word
from fedtwin.world.parts import Channel, Moment


class Settings(NamedTuple):
    """The maximum Doppler frequency f_d = v/λ (10 Hz: walking pace at 2.4 GHz), and how many paths are summed."""

    doppler_hz: Annotated[float, Field(gt=0, le=1e6)] = 10.0
    paths: Annotated[int, Field(ge=4, le=256)] = 16


def fading_gain(at: Moment, settings: Settings) -> float:
    """|g(t)|² with g(t) = Σ_k e^{i(2π f_d t cos α_k + φ_k)} / √K.

    The angles of arrival α_k, one at random in every K-th of the circle, and the phases φ_k are drawn once for a device.
    E|g|² = 1, and E[g(s) g*(s + t)] = J₀(2π f_d t).
    """
    real, imaginary = 0.0, 0.0
    for k in range(settings.paths):
        angle = 2.0 * math.pi * (float(k) + uniform(word(at.stream, 2 * k))) / float(settings.paths)
        phase = 2.0 * math.pi * (settings.doppler_hz * at.clock_s * math.cos(angle) + uniform(word(at.stream, 2 * k + 1)))
        real += math.cos(phase)
        imaginary += math.sin(phase)
    return (real * real + imaginary * imaginary) / float(settings.paths)


def gain(at: Moment, path_gain: float, settings: Settings) -> float:
    """h_n(t) = path gain · |g(t)|²; a fade that is deeper than 120 dB is one of 120 dB."""
    return path_gain * max(fading_gain(at, settings), 1e-12)


CHANNEL = Channel(gain, settings=Settings)
