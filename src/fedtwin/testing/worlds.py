"""Whether a part of a world keeps its word: asked for made-up moments, then run for a while in both engines."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedtwin.config import Config, replace_settings
from fedtwin.draws import stream
from fedtwin.errors import FedtwinError
from fedtwin.parts import settings_of
from fedtwin.registry import BUILT_IN, installed, target_of
from fedtwin.testing.engines import check_engines, config_with
from fedtwin.usercode import clear_caches, digest_of, load_object
from fedtwin.world.fleet import fleet_columns
from fedtwin.world.parts import (
    KINDS,
    Availability,
    Channel,
    Load,
    Moment,
    Processor,
    Sensing,
    Sensor,
    failure_of,
    is_number_above_zero,
    is_number_of_samples,
)

MOMENTS = 3000
ROUND_S = 0.6
SPREAD = {"fleet.samples_spread": [0.0, 0.5]}
Part = Channel | Load | Availability | Sensing


ASKED: dict[type, str] = {Channel: "gain", Load: "cpu_hz", Availability: "available", Sensing: "samples"}
"""The function of a part."""


class CheckedWorld(NamedTuple):
    """What is found of a part that keeps its word.

    ``mean`` is that of the gain by the path gain (1 for Rayleigh fading), of the frequency by the device's mean, of the samples
    by D_n, or the share of moments at which a device answers.
    """

    compiled: bool
    why_not: str | None
    mean: float


class Question(NamedTuple):
    """A moment, and what the part is told of the device besides."""

    at: Moment
    known: tuple[Any, ...]
    size: float


def check_world(part: str | Part, settings: Mapping[str, Any] | None = None, *, rounds: int = 120) -> CheckedWorld:
    """Asks a part of a world for made-up moments whether it is what a run needs, and runs it for a while.

    That is: a gain and a frequency are finite numbers above 0, samples are a whole number of at least 1, an availability is
    True or False; the same arguments give the same answer, in whatever order moments and devices come; and both engines give
    the same rows, asynchronously and synchronously.

    :param part: a ``Channel``, ``Load``, ``Availability`` or ``Sensing``, its registered or installed name, or
        ``module:attribute``.
    :param settings: the part's own settings, where they are not to be its defaults.
    :param rounds: how long each of the runs is.
    :returns: whether it is compiled, if not, why, and the mean of its answers.
    :raises FedtwinError: the first promise that is not kept, in one sentence.
    """
    kind, found = _found(part)
    config = replace_settings(config_with(f"world.{kind}", part, f"world.{kind}_settings", settings, rounds), SPREAD)
    own = settings_of(f"world.{kind}_settings", found.settings, getattr(config.world, f"{kind}_settings"))
    name = f"world.{kind} = {getattr(config.world, kind)!r}"
    before = digest_of(found, running=True)
    mean = _check_answers(name, config, found, own)
    if digest_of(found, running=True) != before:
        raise FedtwinError(
            f"{name} changes something of its own while it runs (a global, a closure, an attribute): "
            "it may look at its arguments only."
        )
    variants = [{"run.mode": mode, "run.seed": seed} for mode, seed in (("async", 0), ("sync", 1))]
    return CheckedWorld(*check_engines(config, f"world.{kind}", variants), mean)


def _found(part: Any) -> tuple[str, Part]:
    loaded: Any = load_object("part", _target(part)) if isinstance(part, str) else part
    kind = next((kind for kind, (_, wanted) in KINDS.items() if isinstance(loaded, wanted)), None)
    if kind is not None:
        return kind, loaded
    raise FedtwinError(
        f"part = {part!r} is a {type(loaded).__name__}, not a Channel, Load, Availability or Sensing of fedtwin.world."
    )


def _target(name: str) -> str:
    kinds = [kind for kind, _ in KINDS.values()]
    found = [target for kind in kinds if (target := target_of(kind, name)) is not None]
    if not found:
        names = ", ".join(known for kind in kinds for known in (*BUILT_IN[kind], *installed(kind)))
        raise FedtwinError(f"part = {name!r} is not a part of a world: choose one of {names}, or module:attribute of your own.")
    return found[0]


def _check_answers(name: str, config: Config, part: Part, settings: Any) -> float:
    """Every moment twice, in two orders, the second time with empty caches; the mean of the answers."""
    asked = list(_questions(config, part))
    answers = [_answer(name, part, question, settings) for question in asked]
    clear_caches(part)
    for place in np.random.default_rng(2).permutation(len(asked)).tolist():
        again = _answer(name, part, asked[place], settings)
        if again != answers[place]:
            raise FedtwinError(
                f"{_where(name, asked[place])}: it gave {answers[place]!r} and then {again!r}: it may depend on its arguments "
                "only (random numbers of that kind are in fedtwin.draws)."
            )
    return math.fsum(value / question.size for value, question in zip(answers, asked, strict=True)) / len(asked)


def _questions(config: Config, part: Part) -> Iterator[Question]:
    """Rounds in a row of every device, as a run asks, then any."""
    chance, fleet, compute = np.random.default_rng(1), fleet_columns(config), config.compute
    devices = len(fleet.samples)
    for number in range(MOMENTS):
        device, round_ = number % devices, number // devices
        if number >= MOMENTS // 2:
            device, round_ = int(chance.integers(0, devices)), int(chance.integers(0, 10**5))
        clock_s = round_ * ROUND_S + float(chance.uniform(0.0, ROUND_S)) if round_ else 0.0
        at = Moment(stream(config.run.seed, int(part.purpose), device), device, round_, clock_s)
        path_gain, mean_hz = float(fleet.path_gain[device]), float(fleet.cpu_hz_mean[device])
        if isinstance(part, Channel):
            yield Question(at, (path_gain,), path_gain)
        elif isinstance(part, Load):
            yield Question(at, (Processor(mean_hz, compute.cpu_hz_std, compute.cpu_hz_floor),), mean_hz)
        elif isinstance(part, Sensing):
            mean = int(fleet.samples[device])
            yield Question(at, (Sensor(mean, float(fleet.samples_spread[device])),), float(mean))
        else:
            yield Question(at, (), 1.0)


def _answer(name: str, part: Part, question: Question, settings: Any) -> float:
    asked: Any = getattr(part, ASKED[type(part)])
    try:
        value: Any = asked(question.at, *question.known, settings)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise FedtwinError(f"{_where(name, question)}: {failure_of(error)}.") from None
    if isinstance(part, Availability):
        if type(value) is not bool:
            raise FedtwinError(f"{_where(name, question)}: it gave {value!r}, and must give True or False.")
    elif isinstance(part, Sensing):
        if type(value) not in (float, int) or not is_number_of_samples(value):
            raise FedtwinError(f"{_where(name, question)}: it gave {value!r}, and must give a whole number, at least 1.")
    elif type(value) not in (float, int) or not is_number_above_zero(value):
        raise FedtwinError(f"{_where(name, question)}: it gave {value!r}, and must give a finite number above 0.")
    return float(value)


def _where(name: str, question: Question) -> str:
    return f"{name} failed in round {question.at.round} for device {question.at.device}"
