"""The world a run meets: a pure function of (seed, device, round, clock), the same for every policy."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedtwin.config import Config
from fedtwin.draws import Purpose, streams
from fedtwin.errors import FedtwinError
from fedtwin.formulas.terms import Quantities, Terms, own_terms, terms_of
from fedtwin.usercode import Questions, is_ours, of_device
from fedtwin.world.fleet import LARGE, FleetColumns, fleet_columns, make_fleet
from fedtwin.world.parts import (
    LEAST_CPU_HZ,
    LEAST_GAIN,
    MOST_CPU_HZ,
    MOST_GAIN,
    MOST_SAMPLES,
    Moment,
    Processor,
    Sensor,
    failure_of,
    is_number_of_samples,
    parts_of,
)


class Draw(NamedTuple):
    """The channel gain h_n(t) and the CPU frequency f_n(t) of one device at one moment, whether it answers then, and D_n(t)."""

    gain: float
    cpu_hz: float
    available: bool
    samples: int


class Draws:
    """What every device of a fleet finds at every moment, and its terms. In a large fleet the columns stay arrays."""

    def __init__(self, config: Config, fleet: FleetColumns) -> None:
        small = len(fleet.samples) < LARGE
        self._path_gain: Any = fleet.path_gain.tolist() if small else fleet.path_gain
        self._cpu_hz_mean: Any = fleet.cpu_hz_mean.tolist() if small else fleet.cpu_hz_mean
        self._sensors: Any = fleet.samples.tolist() if small else fleet.samples, fleet.samples_spread
        self.terms = terms_of(config)
        """As configured: of the run, not of a device."""
        self._own = tuple(getattr(fleet, name) for name in Quantities._fields) if fleet.has_own(self.terms) else None
        self._cpu = config.compute.cpu_hz_std, config.compute.cpu_hz_floor
        parts, seed = parts_of(config), config.run.seed

        def part(name: str, function: Callable[..., Any], purpose: Purpose) -> "_Part":
            starts: Any = streams(seed, purpose, len(fleet.samples))
            called = f"world.{name} = {getattr(config.world, name)!r}"
            return _Part(called, function, getattr(parts, f"{name}_settings"), starts.tolist() if small else starts)

        self._channel = part("channel", parts.channel.gain, parts.channel.purpose)
        self._load = part("load", parts.load.cpu_hz, parts.load.purpose)
        self._availability = part("availability", parts.availability.available, parts.availability.purpose)
        self._sensing = part("sensing", parts.sensing.samples, parts.sensing.purpose)

    @property
    def questions(self) -> list[Questions]:
        """What parts of the user's own were asked."""
        return [part.questions for part in (self._channel, self._load, self._availability, self._sensing)]

    def draw(self, device: int, round_: int, clock_s: float) -> Draw:
        """What the device finds at the moment."""
        return Draw(
            self.gain(device, round_, clock_s),
            self._load.number(device, round_, clock_s, self._processor(device), LEAST_CPU_HZ, MOST_CPU_HZ),
            self._availability.truth(device, round_, clock_s),
            self._sensing.whole(device, round_, clock_s, self._sensor(device)),
        )

    def gain(self, device: int, round_: int, clock_s: float) -> float:
        """Its channel alone."""
        return self._channel.number(device, round_, clock_s, float(self._path_gain[device]), LEAST_GAIN, MOST_GAIN)

    def terms_of(self, device: int) -> Terms:
        """The device's own."""
        if self._own is None:
            return self.terms
        return own_terms(self.terms, Quantities(*(float(column[device]) for column in self._own)))

    def _processor(self, device: int) -> Processor:
        return Processor(float(self._cpu_hz_mean[device]), *self._cpu)

    def _sensor(self, device: int) -> Sensor:
        means, spreads = self._sensors
        return Sensor(int(means[device]), float(spreads[device]))


class World(Draws):
    """Fleet, constants, and what every device finds at every moment."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, fleet_columns(config))
        self.fleet = make_fleet(config)


class _Part:
    """One part for all devices. What is promised of a part of the user's is checked whenever it is asked."""

    def __init__(self, name: str, function: Callable[..., Any], settings: Any, starts: Sequence[int]) -> None:
        self._name, self._function, self._settings, self._starts = name, function, settings, starts
        self._trusted = is_ours(getattr(getattr(function, "__code__", None), "co_filename", ""))
        self.questions = Questions(name, function)

    def number(self, device: int, round_: int, clock_s: float, known: Any, least: float, most: float) -> float:
        if self._trusted:
            return float(self._asked(device, round_, clock_s, known))
        value, again = (self._asked(device, round_, clock_s, known) for _ in range(2))
        for one in (value, again):
            if isinstance(one, bool) or not isinstance(one, float | int | np.floating | np.integer) or not least <= one <= most:
                allowed = f"a finite number above 0, from {least:g} to {most:g}"
                raise self._failure(device, round_, f"it gave {one!r}, and must give {allowed}")
        if value != again:
            raise self._by_chance(device, round_, value, again)
        self._keep(value, device, round_, clock_s, known)
        return float(value)

    def whole(self, device: int, round_: int, clock_s: float, known: Any) -> int:
        if self._trusted:
            return int(self._asked(device, round_, clock_s, known))
        value = self.number(device, round_, clock_s, known, 1.0, MOST_SAMPLES)
        if not is_number_of_samples(value):
            raise self._failure(device, round_, f"it gave {value!r}, and must give a whole number, at least 1")
        return int(value)

    def truth(self, device: int, round_: int, clock_s: float) -> bool:
        if self._trusted:
            return bool(self._asked(device, round_, clock_s))
        value, again = (self._asked(device, round_, clock_s) for _ in range(2))
        for one in (value, again):
            if type(one) is not bool:
                raise self._failure(device, round_, f"it gave {one!r}, and must give True or False")
        if value != again:
            raise self._by_chance(device, round_, value, again)
        self._keep(value, device, round_, clock_s)
        return bool(value)

    def _keep(self, answer: Any, device: int, round_: int, clock_s: float, *known: Any) -> None:
        if self.questions.wants(device):
            self.questions.keep(of_device(device, round_), partial(self._asked, device, round_, clock_s, *known), answer)

    def _asked(self, device: int, round_: int, clock_s: float, *known: Any) -> Any:
        at = Moment(int(self._starts[device]), device, round_, clock_s)
        if self._trusted:
            return self._function(at, *known, self._settings)
        try:
            return self._function(at, *known, self._settings)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failure(device, round_, failure_of(error)) from None

    def _by_chance(self, device: int, round_: int, value: Any, again: Any) -> FedtwinError:
        what = f"it gave {value!r} and then {again!r}: it may depend on its arguments only"
        return self._failure(device, round_, f"{what} (random numbers of that kind are in fedtwin.draws)")

    def _failure(self, device: int, round_: int, what: str) -> FedtwinError:
        return FedtwinError(f"{self._name} failed in round {round_} for device {device}: {what}.")
