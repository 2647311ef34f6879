"""Short runs in both engines, to the same bits."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedtwin.compiling import can_compile
from fedtwin.config import Config, config_of, replace_settings
from fedtwin.errors import CannotCompileError, EnginesDifferError, FedtwinError, FedtwinWarning
from fedtwin.sim.fast.compile import exchanged_in, obstacle_to_compiling
from fedtwin.sim.given import with_object
from fedtwin.sim.result import Result
from fedtwin.sim.run import simulate

SMALL: dict[str, Any] = {"fleet.devices": 9, "fleet.channels": 4, "objective.max_time_s": 0.8}
"""A fleet in which some devices decline now and then."""
Variant = Mapping[str, Any]


class Engines(NamedTuple):
    """Whether the compiled engine runs it as well, and if not, why: one sentence."""

    compiled: bool
    why_not: str | None


def config_with(setting: str, part: Any, settings_in: str, settings: Variant | None, rounds: int) -> Config:
    """A small run with a part, given by name or as it is, and its own settings."""
    config = config_of({**SMALL, "run.rounds": rounds, settings_in: dict(settings or {})})
    return replace_settings(config, {setting: part}) if isinstance(part, str) else with_object(config, setting, part)


def check_engines(config: Config, setting: str, variants: Iterable[Variant]) -> Engines:
    """Every variant of the configuration is run readably, and compiled where that can be done: the rows must be the same."""
    why_not = _why_not(config)
    for variant in variants:
        varied = replace_settings(config, variant)
        readable = _run(varied, "readable")
        if why_not is not None:
            continue
        try:
            compiled = _run(varied, "compiled")
        except EnginesDifferError:
            raise
        except CannotCompileError as error:
            why_not = str(error)
            continue
        if not readable.rounds.equals(compiled.rounds) or readable.summary != compiled.summary:
            section, key = setting.split(".")
            where = ", ".join(f"{name} = {value!r}" for name, value in variant.items())
            raise FedtwinError(
                f"{setting} = {getattr(getattr(config, section), key)!r} gives other rows when it is compiled "
                f"({where}; {_first_difference(readable, compiled)})."
            )
    return Engines(why_not is None, why_not)


def _why_not(config: Config) -> str | None:
    if not can_compile():
        return "The compiled engine needs Numba: pip install 'fedtwin[sim]'."
    obstacle = obstacle_to_compiling(exchanged_in(config))
    return None if obstacle is None else str(obstacle)


def _run(config: Config, engine: str) -> Result:
    """What a run of made-up settings warns of is nobody's concern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedtwinWarning)
        return simulate(replace_settings(config, {"run.engine": engine}))


def _first_difference(readable: Result, compiled: Result) -> str:
    for one, other in zip(readable.rounds.to_pylist(), compiled.rounds.to_pylist(), strict=False):
        for column, value in one.items():
            if value != other[column]:
                return f"round {one['round']}: {column} is {value!r}, compiled {other[column]!r}"
    return "one of them is longer"
