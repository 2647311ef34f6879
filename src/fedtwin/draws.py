"""Random numbers as a pure function of (seed, purpose, device, counter).

SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) read as a
counter-based generator: word k of a stream is ``mix(stream + (k + 1) * GOLDEN)``, so any draw is had without the draws
before it. The functions use integer operations only, so one definition serves Python integers, arrays of uint64 and
compiled code, with the same bits.
"""

from enum import IntEnum
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

MASK = 0xFFFF_FFFF_FFFF_FFFF
GOLDEN = 0x9E37_79B9_7F4A_7C15

Words = NDArray[np.uint64]


class Purpose(IntEnum):
    """What a stream is for: streams of different purposes are independent."""

    PLACEMENT = 1
    WORLD = 2
    TIES = 3
    START = 4
    POLICY = 5
    PARTITION = 6
    TRAINING = 7
    MODEL = 8
    CHANNEL = 9
    LOAD = 10
    AVAILABILITY = 11
    SENSING = 12
    AUGMENTATION = 13


def as_word(z: Any) -> Any:
    """The lower 64 bits, as an unsigned number. Compiled code has an instruction for it."""
    return z & MASK


@overload
def mix(z: int) -> int: ...
@overload
def mix(z: Words) -> Words: ...
def mix(z: Any) -> Any:
    """The SplitMix64 finaliser: a bijection of 64-bit words that scatters neighbouring inputs."""
    z = as_word((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9)
    z = as_word((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB)
    return z ^ (z >> 31)


@overload
def stream(seed: int, purpose: int, device: int) -> int: ...
@overload
def stream(seed: int, purpose: int, device: Words) -> Words: ...
def stream(seed: int, purpose: int, device: Any) -> Any:
    """Where the stream of one device for one purpose starts."""
    root = mix(as_word(mix(as_word(seed + GOLDEN)) + as_word(purpose * GOLDEN)))
    return mix(as_word(as_word(device * GOLDEN) + root))


@overload
def word(start: int, counter: int) -> int: ...
@overload
def word(start: Words, counter: int) -> Words: ...
def word(start: Any, counter: int) -> Any:
    """The word number ``counter`` (from 0) of a stream."""
    return mix(as_word(start + as_word((counter + 1) * GOLDEN)))


def uniform(bits: int) -> float:
    """A uniform number strictly between 0 and 1 from the upper 52 bits of a word."""
    return ((bits >> 12) + 0.5) * 2.0**-52


def streams(seed: int, purpose: Purpose, devices: int) -> Words:
    """The streams of devices 0 … devices-1."""
    return stream(seed, int(purpose), np.arange(devices, dtype=np.uint64))


def ranks(seed: int, purpose: Purpose, devices: int) -> NDArray[np.int64]:
    """A random permutation of the devices, drawn once: ``ranks[n]`` is the place of device n."""
    order = np.argsort(word(streams(seed, purpose, devices), 0), kind="stable")
    places = np.empty(devices, dtype=np.int64)
    places[order] = np.arange(devices)
    return places
