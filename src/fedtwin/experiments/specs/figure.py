"""The experiment behind a figure: one committed TOML file each, nothing about a figure is said anywhere else."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.specs.grid import flat_settings, grid_points

Profile = Literal["quick", "full"]
LEAST_ROUNDS = 10
SAID_ELSEWHERE = {"run.seed": "a profile says how many seeds", "policy.name": "say --schemes instead"}
AT_OTHER_WEIGHTS = ("6-energy", "7-energy", "8-energy", "9-energy")
FIGURES = (
    "3",
    "4",
    "5",
    "regret",
    "decomposition",
    "queues",
    "theorem1",
    "digits",
    "headline",
    "6",
    "7",
    "8",
    "9",
    *AT_OTHER_WEIGHTS,
)


class Effort(BaseModel):
    """How much work a profile is, and the settings that only it has; ``schemes`` where it has not all of the figure's."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rounds: int = Field(ge=1)
    seeds: int = Field(ge=1)
    schemes: list[str] | None = Field(None, min_length=1)
    config: dict[str, dict[str, Any]] = {}


class SweptSetting(BaseModel):
    """One setting, and the values it takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    key: str
    values: list[float] = Field(min_length=1)


class Variant(BaseModel):
    """A scheme with settings of its own: it stands among the schemes under a name of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    scheme: str
    config: dict[str, dict[str, Any]] = {}


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
    """Schemes × values of one setting × seeds, on a base configuration.

    A name among ``variants`` is the scheme with the settings that are said there. ``levels`` are accuracies: a figure of
    accuracy also tells what it takes to come to them.
    ``changed`` says in words what a user has changed, ``settings`` are those laid over all others for that.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    figure: str
    kind: str
    title: str
    x_label: str
    y_label: str
    schemes: list[str] = Field(min_length=1)
    variants: dict[str, Variant] = {}
    sweep: SweptSetting | None = None
    sampling: Sampling | None = None
    profiles: dict[Profile, Effort]
    levels: list[float] = [0.5, 0.55, 0.6]
    config: dict[str, dict[str, Any]] = {}
    settings: dict[str, Any] = {}
    changed: str = ""

    def configs(self, profile: Profile) -> list[tuple[str, float | None, Config]]:
        """Every run: scheme, value of the swept setting, configuration."""
        effort = self.profiles[profile]
        settings = {**flat_settings(self.config), **flat_settings(effort.config), **self.settings, "run.rounds": effort.rounds}
        grid = {self.sweep.key: self.sweep.values} if self.sweep else {}
        folder = Path.cwd() if any(":" in scheme for scheme in self.schemes) else None
        return [
            (name, next(iter(point.values.values()), None), point.config)
            for name, variant in self._variants(effort.schemes or self.schemes).items()
            for point in grid_points(
                {**settings, **flat_settings(variant.config)}, grid, [variant.scheme], range(effort.seeds), folder
            )
        ]

    def with_changes(self, schemes: Sequence[str] | None = None, settings: Mapping[str, Any] | None = None) -> "Experiment":
        """The same figure with other schemes, and with ``{"section.key": value}`` laid over its settings.

        It has a name of its own, so that it stands beside the figure it is made of, and says what is changed.
        """
        over, words = dict(settings or {}), []
        chosen = list(self.schemes) if schemes is None else list(schemes)
        swept = {name for variant in self._variants(chosen).values() for name in flat_settings(variant.config)}
        swept |= {self.sweep.key} if self.sweep is not None else set()
        for name in over:
            if name in SAID_ELSEWHERE or name in swept:
                why = SAID_ELSEWHERE.get(name, "it is what the figure sweeps")
                raise FedtwinError(f"{name} is not to be set for figure {self.figure}: {why}.")
        if chosen != self.schemes:
            words.append(f"schemes {', '.join(chosen)}")
        words += [f"{name} = {value}" for name, value in over.items()]
        if not words:
            return self
        digest = hashlib.sha256(json.dumps([chosen, sorted(over.items())], default=str).encode()).hexdigest()[:8]
        return self.model_copy(
            update={
                "figure": f"{self.figure}-{digest}",
                "schemes": chosen,
                "profiles": _with_rounds(self._profiles_for(chosen), over.get("run.rounds")),
                "settings": over,
                "changed": "; ".join(words),
            }
        )

    def _profiles_for(self, schemes: Sequence[str]) -> dict[Profile, Effort]:
        """A profile's own choice of schemes is for the figure's."""
        own = {} if schemes == self.schemes else {"schemes": None}
        return {name: effort.model_copy(update=own) for name, effort in self.profiles.items()}

    def _variants(self, schemes: Sequence[str]) -> dict[str, Variant]:
        return {name: self.variants.get(name, Variant(scheme=name)) for name in schemes}


def _with_rounds(profiles: Mapping[Profile, Effort], rounds: Any) -> dict[Profile, Effort]:
    if rounds is None:
        return dict(profiles)
    if type(rounds) is not int or rounds < LEAST_ROUNDS:
        raise FedtwinError(f"run.rounds = {rounds!r} is not allowed in a figure: it must be a number from {LEAST_ROUNDS} on.")
    return {name: effort.model_copy(update={"rounds": rounds}) for name, effort in profiles.items()}


def load_experiment(figure: str) -> Experiment:
    """The committed experiment of a figure."""
    if figure not in FIGURES:
        raise FedtwinError(f"figure {figure!r} is unknown: choose one of {', '.join(FIGURES)}.")
    return parse_experiment(_text(figure))


def parse_experiment(text: str) -> Experiment:
    """An experiment from TOML. One that is ``like`` another figure says only what is different."""
    try:
        said = tomllib.loads(text)
        like = said.pop("like", None)
        return Experiment.model_validate(said if like is None else _laid_over(tomllib.loads(_text(like)), said))
    except tomllib.TOMLDecodeError as error:
        raise FedtwinError(f"The experiment is not valid TOML: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise FedtwinError(f"The experiment's {place} = {first['input']!r} is not allowed: {first['msg']}.") from None


def _text(figure: str) -> str:
    return files("fedtwin.experiments.specs").joinpath(f"figure_{figure}.toml").read_text(encoding="utf-8")


def _laid_over(base: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    both = {key: _laid_over(base[key], value) for key, value in said.items() if isinstance(value, dict) and key in base}
    return {**base, **said, **both}
