"""Values of some settings × schemes × seeds, as configurations in that order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fedtwin.config import Config, build_config, seen_from
from fedtwin.experiments.specs.schemes import each_with_its_settings, scheme_config
from fedtwin.learning.charges import UploadSizes
from fedtwin.registry import find_scheme


@dataclass(frozen=True)
class Point:
    """One run of a grid: the values its settings take, by name, and the whole configuration."""

    values: dict[str, Any]
    scheme: str
    config: Config


def flat_settings(nested: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """``{section: {key: value}}`` as ``{"section.key": value}``."""
    return {f"{section}.{key}": value for section, keys in nested.items() for key, value in keys.items()}


def grid_points(
    settings: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    schemes: Sequence[str],
    seeds: Sequence[int],
    folder: Path | None = None,
) -> Iterator[Point]:
    """Every run, validated: ``{"section.key": value}`` of all runs, then the grid's, the scheme, the seed.

    Files that settings name are looked for from ``folder``.
    """
    sizes = UploadSizes()
    for values in product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        merged = {name: seen_from(folder or Path(), name, value) for name, value in {**settings, **chosen}.items()}
        asked, configs = list(product(schemes, seeds)), []
        for scheme, seed in asked:
            paper = find_scheme(scheme)  # its mode is known before, since some settings are for one mode only
            mode = {"run.mode": paper.mode} if paper is not None else {}
            configs.append(scheme_config(build_config({}, {**mode, **merged, "run.seed": seed}), scheme, folder))
        swept = any(name.startswith("policy.settings.") for name in grid)  # a scheme without it would be the same run at each
        if not swept and any(config.policy.settings for config in configs):
            configs = each_with_its_settings(configs)
        for (scheme, _), config in zip(asked, configs, strict=True):
            yield Point(chosen, scheme, sizes.charged(config))
