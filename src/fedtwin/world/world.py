"""The world a run meets: a pure function of (seed, device, round, clock), the same for every policy."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fedtwin.config import Config
from fedtwin.draws import Purpose, streams
from fedtwin.errors import FedtwinError
from fedtwin.formulas.terms import terms_of
from fedtwin.usercode import is_ours
from fedtwin.world.fleet import LARGE, FleetColumns, fleet_columns, make_fleet
from fedtwin.world.parts import Moment, Processor, failure_of, is_number_above_zero, parts_of


class Draw(NamedTuple):
    """The channel gain h_n(t) and the CPU frequency f_n(t) of one device at one moment, and whether it answers then."""

    gain: float
    cpu_hz: float
    available: bool


class Draws:
    """What every device of a fleet finds at every moment. In a large fleet the columns stay arrays."""

    def __init__(self, config: Config, fleet: FleetColumns) -> None:
        small = len(fleet.samples) < LARGE
        self._path_gain: Any = fleet.path_gain.tolist() if small else fleet.path_gain
        self._cpu_hz_mean: Any = fleet.cpu_hz_mean.tolist() if small else fleet.cpu_hz_mean
        self._cpu = config.compute.cpu_hz_std, config.compute.cpu_hz_floor
        parts, seed = parts_of(config), config.run.seed

        def part(name: str, function: Callable[..., Any], purpose: Purpose) -> "_Part":
            starts: Any = streams(seed, purpose, len(fleet.samples))
            called = f"world.{name} = {getattr(config.world, name)!r}"
            return _Part(called, function, getattr(parts, f"{name}_settings"), starts.tolist() if small else starts)

        self._channel = part("channel", parts.channel.gain, parts.channel.purpose)
        self._load = part("load", parts.load.cpu_hz, parts.load.purpose)
        self._availability = part("availability", parts.availability.available, parts.availability.purpose)

    def draw(self, device: int, round_: int, clock_s: float) -> Draw:
        """What the device finds at the moment."""
        return Draw(
            self.gain(device, round_, clock_s),
            self._load.number(device, round_, clock_s, Processor(float(self._cpu_hz_mean[device]), *self._cpu)),
            self._availability.truth(device, round_, clock_s),
        )

    def gain(self, device: int, round_: int, clock_s: float) -> float:
        """Its channel alone."""
        return self._channel.number(device, round_, clock_s, float(self._path_gain[device]))


class World(Draws):
    """Fleet, constants, and what every device finds at every moment."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, fleet_columns(config))
        self.fleet = make_fleet(config)
        self.terms = terms_of(config)


class _Part:
    """One part for all devices. What is promised of a part of the user's is checked whenever it is asked."""

    def __init__(self, name: str, function: Callable[..., Any], settings: Any, starts: Sequence[int]) -> None:
        self._name, self._function, self._settings, self._starts = name, function, settings, starts
        self._trusted = is_ours(getattr(getattr(function, "__code__", None), "co_filename", ""))

    def number(self, device: int, round_: int, clock_s: float, known: Any) -> float:
        value: Any = self._asked(device, round_, clock_s, known)
        if not self._trusted and (type(value) not in (float, int) or not is_number_above_zero(value)):
            raise self._failure(device, round_, f"it gave {value!r}, and must give a finite number above 0")
        return float(value)

    def truth(self, device: int, round_: int, clock_s: float) -> bool:
        value: Any = self._asked(device, round_, clock_s)
        if not self._trusted and type(value) is not bool:
            raise self._failure(device, round_, f"it gave {value!r}, and must give True or False")
        return bool(value)

    def _asked(self, device: int, round_: int, clock_s: float, *known: Any) -> Any:
        at = Moment(int(self._starts[device]), device, round_, clock_s)
        if self._trusted:
            return self._function(at, *known, self._settings)
        try:
            value, again = (self._function(at, *known, self._settings) for _ in range(2))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failure(device, round_, failure_of(error)) from None
        if value != again and not (value != value and again != again):
            what = f"it gave {value!r} and then {again!r}: it may depend on its arguments only"
            raise self._failure(device, round_, f"{what} (random numbers of that kind are in fedtwin.draws)")
        return value

    def _failure(self, device: int, round_: int, what: str) -> FedtwinError:
        return FedtwinError(f"{self._name} failed in round {round_} for device {device}: {what}.")
