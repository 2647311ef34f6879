"""Every promise of a part of a world: whoever breaks it is found out, in one sentence."""

import functools
import math
import random
import time
from typing import Any, NamedTuple

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.testing import check_world
from fedtwin.world.parts import Availability, Channel, Load, Moment, Processor, Sensing, Sensor

CALLS = [0]


class Settings(NamedTuple):
    """Of a part."""

    share: float = 0.5


def negative(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    return -path_gain


def zero_sometimes(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    return 0.0 if at.round == 40 else path_gain


def infinite(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    return math.inf


def not_a_number(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    return math.nan


def by_chance(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    return path_gain * random.random()


def by_the_time(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    return path_gain * time.perf_counter()


def counting(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    CALLS[0] += 1
    return path_gain * (1 + CALLS[0] // 10**7)


@functools.cache
def drawn(device: int, round_: int) -> float:  # noqa: ARG001
    return random.random()


def by_memoised_chance(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    return path_gain * drawn(at.device, at.round)


def failing(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    return path_gain / abs(at.device - 3)


def undeclared(at: Moment, path_gain: float, settings: Any) -> float:  # noqa: ARG001
    return path_gain * float(settings.share)


def a_text(at: Moment, path_gain: float, settings: Any) -> Any:  # noqa: ARG001
    return "strong"


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (negative, r"failed in round 0 for device 0: it gave -\S+, and must give a finite number above 0"),
        (zero_sometimes, r"failed in round 40 for device 0: it gave 0\.0, and must give"),
        (infinite, "it gave inf, and must give"),
        (not_a_number, "it gave nan, and must give"),
        (by_chance, r"it gave \S+ and then \S+: it may depend on its arguments only"),
        (by_the_time, r"it gave \S+ and then \S+: it may depend on its arguments only"),
        (by_memoised_chance, r"it gave \S+ and then \S+: it may depend on its arguments only"),
        (counting, "changes something of its own while it runs"),
        (failing, r"for device 3: ZeroDivisionError: .* \(.*test_worlds\.py, line \d+\)"),
        (undeclared, "it looks for 'share' in settings that its part does not declare"),
        (a_text, "it gave 'strong', and must give a finite number above 0"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_broken_channel_is_one_sentence(gain: Any, words: str) -> None:
    _refused(Channel(gain), rf"world\.channel = 'object:.*{words}")


def _refused(part: Any, words: str) -> None:
    with pytest.raises(FedtwinError, match=words) as told:
        check_world(part)
    assert "\n" not in str(told.value) and str(told.value).endswith(".")


def stopped(at: Moment, processor: Processor, settings: Any) -> float:  # noqa: ARG001
    return 0.0


def one(at: Moment, settings: Any) -> Any:  # noqa: ARG001
    return 1


def test_a_broken_load_or_availability_is_one_sentence() -> None:
    _refused(Load(stopped), r"world\.load = .* it gave 0\.0, and must give a finite number above 0")
    _refused(Availability(one), r"world\.availability = .* it gave 1, and must give True or False")


def half(at: Moment, sensor: Sensor, settings: Any) -> float:  # noqa: ARG001
    return sensor.mean / 2


def none_sometimes(at: Moment, sensor: Sensor, settings: Any) -> float:  # noqa: ARG001
    return 0 if at.round == 40 else sensor.mean


def at_random(at: Moment, sensor: Sensor, settings: Any) -> float:  # noqa: ARG001
    return random.randint(1, sensor.mean)


def halved(at: Moment, sensor: Sensor, settings: Settings) -> float:
    """Every other round some of the samples, rounded down."""
    return sensor.mean if at.round % 2 == 0 else max(settings.share * sensor.mean // 1.0, 1.0)


def test_a_broken_sensing_is_one_sentence() -> None:
    whole = "and must give a whole number, at least 1"
    _refused(Sensing(half), rf"world\.sensing = .* it gave \d+\.5, {whole}")
    _refused(Sensing(none_sometimes), rf"world\.sensing = .*failed in round 40 for device 0: it gave 0, {whole}")
    _refused(Sensing(at_random), r"world\.sensing = .* it gave \S+ and then \S+: it may depend on its arguments only")


@pytest.mark.slow
def test_a_sensing_of_ones_own_runs_in_both_engines() -> None:
    compiled, why_not, mean = check_world(Sensing(halved, Settings), {"share": 0.25})
    assert compiled, why_not
    assert mean == pytest.approx(0.62, abs=0.01)


def test_what_is_no_part_is_told() -> None:
    _refused(negative, "is a function, not a Channel, Load, Availability or Sensing of fedtwin.world")
    _refused("raleigh", "'raleigh' is not a part of a world: choose one of rayleigh, .*normal, .*always, .*module:attribute")
    _refused("math:pi", r"'math:pi' is a float, not a Channel, Load, Availability or Sensing")
    _refused("no_such_module:PART", "'no_such_module:PART' cannot be loaded: ModuleNotFoundError")


def by_share(at: Moment, settings: Settings) -> bool:
    return [at.round % 4 < 4 * settings.share][0]


def test_what_is_found_is_reported() -> None:
    compiled, why_not, mean = check_world(Availability(by_share, Settings), rounds=30)
    assert not compiled and why_not is not None and why_not.startswith("world.availability = 'object:")
    assert mean == pytest.approx(0.5, abs=0.05)
    assert check_world(Availability(by_share, Settings), {"share": 0.25}, rounds=30).mean == pytest.approx(0.25, abs=0.05)
    with pytest.raises(FedtwinError, match=r"world\.availability_settings\.share = 'x' is not allowed"):
        check_world(Availability(by_share, Settings), {"share": "x"})
