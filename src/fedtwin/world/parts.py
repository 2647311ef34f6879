"""What a world is made of: a channel, a load, an availability, a sensing. Each is a pure function of device, round and clock.

A part is handed the ``Moment`` it is asked for, what never changes of the device, and its own settings. Random numbers come
from the moment's ``stream``, which is the device's own for this part: ``uniform(word(at.stream, k))`` of ``fedtwin.draws``
is the k-th number of it, whenever it is asked for.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedtwin.config import Config
from fedtwin.draws import Purpose
from fedtwin.errors import FedtwinError
from fedtwin.parts import check_schema, name_looked_for_in_nothing, settings_of
from fedtwin.registry import Kind, target_of
from fedtwin.usercode import load_object, sentence_of_error


class Moment(NamedTuple):
    """Whom a part is asked about, and when: the round t, and the virtual clock in seconds."""

    stream: int
    device: int
    round: int
    clock_s: float


class Processor(NamedTuple):
    """What is configured of a device's CPU: its mean frequency, the deviation from round to round, and the floor."""

    mean_hz: float
    std_hz: float
    floor_hz: float


class Sensor(NamedTuple):
    """What is configured of a device's samples: D_n, and by which part of it D_n(t) may stray from round to round."""

    mean: int
    spread: float


@dataclass(frozen=True)
class Channel:
    """``gain(at, path_gain, settings)`` is h_n(t), from 1e-60 to 1e60. ``purpose`` names the stream of its random numbers."""

    gain: Callable[[Moment, float, Any], float]
    settings: Any = None
    purpose: Purpose = Purpose.CHANNEL

    def __post_init__(self) -> None:
        _check("Channel", self.settings, gain=self.gain)


@dataclass(frozen=True)
class Load:
    """``cpu_hz(at, processor, settings)`` is f_n(t), the frequency that is left for the training, from 1 to 1e15."""

    cpu_hz: Callable[[Moment, Processor, Any], float]
    settings: Any = None
    purpose: Purpose = Purpose.LOAD

    def __post_init__(self) -> None:
        _check("Load", self.settings, cpu_hz=self.cpu_hz)


@dataclass(frozen=True)
class Availability:
    """``available(at, settings)``: a device that is not does not answer when asked; an upload on its way still arrives."""

    available: Callable[[Moment, Any], bool]
    settings: Any = None
    purpose: Purpose = Purpose.AVAILABILITY

    def __post_init__(self) -> None:
        _check("Availability", self.settings, available=self.available)


@dataclass(frozen=True)
class Sensing:
    """``samples(at, sensor, settings)`` is D_n(t), the samples that a training of this round takes: a whole number from 1."""

    samples: Callable[[Moment, Sensor, Any], float]
    settings: Any = None
    purpose: Purpose = Purpose.SENSING

    def __post_init__(self) -> None:
        _check("Sensing", self.settings, samples=self.samples)


class Parts(NamedTuple):
    """The four parts of a world, each with its settings."""

    channel: Channel
    load: Load
    availability: Availability
    sensing: Sensing
    channel_settings: Any
    load_settings: Any
    availability_settings: Any
    sensing_settings: Any


LEAST_GAIN, MOST_GAIN = 1e-60, 1e60
LEAST_CPU_HZ, MOST_CPU_HZ = 1.0, 1e15
MOST_SAMPLES = 1e12
"""Between which bounds a gain, a frequency and a number of samples have to lie, for the formulas to be exact."""

KINDS: dict[str, tuple[Kind, type]] = {
    "channel": ("channels", Channel),
    "load": ("loads", Load),
    "availability": ("availabilities", Availability),
    "sensing": ("sensings", Sensing),
}


def parts_of(config: Config) -> Parts:
    """The world that a configuration names."""
    parts = {name: load_part(name, getattr(config.world, name), config.code.folder) for name in KINDS}
    settings = {
        f"{name}_settings": settings_of(f"world.{name}_settings", part.settings, getattr(config.world, f"{name}_settings"))
        for name, part in parts.items()
    }
    return Parts(**parts, **settings)


def load_part(name: str, given: str, folder: str | None = None) -> Any:
    """The part behind a registered name, an installed one, or ``module:attribute``, looked for in ``folder`` first."""
    kind, wanted = KINDS[name]
    target = target_of(kind, given) or given
    part = load_object(f"world.{name}", target, folder if target == given else None)
    if not isinstance(part, wanted):
        raise FedtwinError(f"world.{name} = {given!r} is a {type(part).__name__}, not a fedtwin.world.{wanted.__name__}.")
    return part


def is_number_above_zero(value: float) -> bool:
    """What a gain and a frequency have to be at the least."""
    return 0.0 < value < math.inf


def is_number_of_samples(value: float) -> bool:
    """Whole, and at least 1."""
    return 1.0 <= value <= MOST_SAMPLES and value % 1.0 == 0.0


def failure_of(error: BaseException) -> str:
    """What a part did instead of giving an answer, as the end of a sentence."""
    name = name_looked_for_in_nothing(error)
    return sentence_of_error(error) if name is None else f"it looks for {name!r} in settings that its part does not declare"


def _check(what: str, settings: Any, **functions: Any) -> None:
    if settings is not None:
        check_schema(f"{what} settings", settings)
    for name, function in functions.items():
        if not callable(function):
            raise FedtwinError(f"{name} = {function!r} is a {type(function).__name__}: a function is needed.")
