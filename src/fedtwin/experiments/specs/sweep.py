"""What a sweep is: one TOML file with schemes, seeds, base settings and a grid of others."""

import math
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedtwin.config.schema import Whole
from fedtwin.errors import FedtwinError
from fedtwin.experiments.specs.grid import Point, flat_settings, grid_points
from fedtwin.policies import load_policy
from fedtwin.registry import SCHEMES, find_scheme, known_names, target_of

MOST_RUNS = 1_000_000
PLAIN_WORDS = {
    "dict_type": "it must be a section of settings",
    "list_type": "it must be a list",
    "string_type": "it must be text",
}
SAID_ELSEWHERE = {"run.seed": "seeds", "policy.name": "schemes"}


class SweepSpec(BaseModel):
    """Every combination of the grid's values × schemes × seeds, over base settings. Valid if every run of it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    schemes: list[str] = Field(list(SCHEMES), min_length=1)
    seeds: list[int] = Field(list(range(5)))
    rounds: Whole | None = Field(None, ge=1)
    config: dict[str, dict[str, Any]] = {}
    grid: dict[str, list[Any]] = {}

    @field_validator("schemes")
    @classmethod
    def _schemes_are_known(cls, names: list[str]) -> list[str]:
        for name in names:
            if target_of("policies", name) is None and find_scheme(name) is None:
                raise ValueError(f"{name!r} is unknown, choose from {known_names()}")
        return names

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds_are_a_number_or_a_list(cls, seeds: Any) -> Any:
        if isinstance(seeds, int) and not isinstance(seeds, bool) and 1 <= seeds <= MOST_RUNS:
            return list(range(seeds))
        if isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds):
            return seeds
        raise ValueError(f"it must be how many seeds, 1 to {MOST_RUNS}, or a list of seeds from 0 on")

    @field_validator("grid", mode="before")
    @classmethod
    def _grid_is_lists_of_values(cls, grid: Any) -> Any:
        """``"fleet.channels" = [5, 15]`` with or without the quotes."""
        if not isinstance(grid, dict):
            raise ValueError("it must be a section of settings")
        nested = {key: values for key, values in grid.items() if isinstance(values, dict)}
        flat = {**{key: values for key, values in grid.items() if key not in nested}, **flat_settings(nested)}
        if twice := [name for name in flat_settings(nested) if name in grid]:
            raise ValueError(f"{twice[0]} is there twice, with its name in quotes and without: leave one out")
        for name, values in flat.items():
            if not isinstance(values, list) or not values:
                raise ValueError(f"{name} = {values!r} must be a list of values, such as [0.5, 1.0]")
            try:
                pa.array(values)
            except (pa.ArrowException, OverflowError):
                raise ValueError(f"{name} = {values!r} must be all numbers or all text") from None
        return flat

    @property
    def size(self) -> int:
        """How many runs it is."""
        return math.prod(map(len, self.grid.values())) * len(self.schemes) * len(self.seeds)

    def points(self, folder: Path) -> list[Point]:
        """Every run, validated, in the order of the grid, then of the schemes, then of the seeds."""
        settings = flat_settings(self.config)
        for name in chain(settings, self.grid):
            if name in SAID_ELSEWHERE:
                raise FedtwinError(f"{name} is not for a sweep's config or grid: say {SAID_ELSEWHERE[name]} = [...] instead.")
        if self.rounds is not None and "rounds" in self.config.get("run", {}):
            raise FedtwinError(f"rounds = {self.rounds} and [config.run] rounds contradict each other: leave one out.")
        if self.rounds is not None and "run.rounds" in self.grid:
            raise FedtwinError(f"rounds = {self.rounds} and run.rounds in the grid contradict each other: leave one out.")
        if self.size > MOST_RUNS:
            raise FedtwinError(f"The sweep has {self.size:,} runs: {MOST_RUNS:,} are allowed.")
        rounds = {"run.rounds": self.rounds} if self.rounds is not None else {}
        return list(grid_points({**settings, **rounds}, self.grid, self.schemes, self.seeds, folder))


def sweep_points(content: Mapping[str, Any], folder: Path) -> list[Point]:
    """Every run of a sweep; whatever is wrong with any of them is one sentence. Files and code are looked for in ``folder``."""
    try:
        points = SweepSpec.model_validate(content).points(folder)
    except ValidationError as error:
        raise FedtwinError(_one_sentence(error)) from None
    for name, code_in in {(point.config.policy.name, point.config.code.folder) for point in points}:
        load_policy(name, code_in)
    return points


def words_of(point: Point) -> str:
    """Names a run of the sweep to a person."""
    values = [f"{name} = {value!r}" for name, value in point.values.items()]
    return ", ".join([*values, point.scheme, f"seed {point.config.run.seed}"])


def _one_sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{name} is not a part of a sweep: allowed are {', '.join(SweepSpec.model_fields)}."
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be").rstrip(".")
    return f"{name} = {first['input']!r} is not allowed: {PLAIN_WORDS.get(first['type'], message)}."
