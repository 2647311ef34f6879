"""The experiment behind a figure: one committed TOML file each, nothing about a figure is said anywhere else."""

import tomllib
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.grid import flat_settings, grid_points

Profile = Literal["quick", "full"]
Kind = Literal["cost", "total-queue", "regret", "accuracy"]
FIGURES = ("3", "4", "5", "regret", "digits", "6", "7", "8", "9")


class Effort(BaseModel):
    """How much work a profile is, and the settings that only it has."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rounds: int = Field(ge=1)
    seeds: int = Field(ge=1)
    config: dict[str, dict[str, Any]] = {}


class Sweep(BaseModel):
    """One setting, and the values it takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    key: str
    values: list[float] = Field(min_length=1)


class Sampling(BaseModel):
    """At how many rounds a curve over rounds is sampled, evenly or by ratio."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    points: int = Field(ge=2)
    spacing: Literal["even", "ratio"] = "even"
    first_round: int = Field(1, ge=1)

    def rounds(self, last: int) -> tuple[int, ...]:
        space = np.linspace if self.spacing == "even" else np.geomspace
        return tuple(sorted({round(float(x)) for x in space(self.first_round, last, self.points)}))


class Experiment(BaseModel):
    """Schemes × values of one setting × seeds, on a base configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    figure: str
    kind: Kind
    title: str
    x_label: str
    y_label: str
    schemes: list[str] = Field(min_length=1)
    sweep: Sweep | None = None
    sampling: Sampling | None = None
    profiles: dict[Profile, Effort]
    config: dict[str, dict[str, Any]] = {}

    def configs(self, profile: Profile) -> list[tuple[str, float | None, Config]]:
        """Every run: scheme, value of the swept setting, configuration."""
        effort = self.profiles[profile]
        settings = {**flat_settings(self.config), **flat_settings(effort.config), "run.rounds": effort.rounds}
        grid = {self.sweep.key: self.sweep.values} if self.sweep else {}
        return [
            (scheme, next(iter(point.values.values()), None), point.config)
            for scheme in self.schemes
            for point in grid_points(settings, grid, [scheme], range(effort.seeds))
        ]


def load_experiment(figure: str) -> Experiment:
    """The committed experiment of a figure."""
    if figure not in FIGURES:
        raise FedtwinError(f"figure {figure!r} is unknown: choose one of {', '.join(FIGURES)}.")
    return parse_experiment(files("fedtwin.experiments").joinpath(f"figure_{figure}.toml").read_text(encoding="utf-8"))


def parse_experiment(text: str) -> Experiment:
    """An experiment from TOML."""
    try:
        return Experiment.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise FedtwinError(f"The experiment is not valid TOML: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise FedtwinError(f"The experiment's {place} = {first['input']!r} is not allowed: {first['msg']}.") from None
