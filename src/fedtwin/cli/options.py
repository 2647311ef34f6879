"""Options that several commands share, and how they become a configuration."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedtwin.config import Config, load_config, parse_assignment, read_toml, seen_from

ConfigFile = Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings; what it leaves out is default.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
PolicyOption = Annotated[str | None, typer.Option(help="Policy (cu-ucb) or scheme of the paper (CU-UCB, Sy-fairness).")]
RoundsOption = Annotated[int | None, typer.Option(help="Selections to make.")]
SeedOption = Annotated[int | None, typer.Option(help="Seed of the world.")]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Processes to use; all cores by default.")]
RayOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS|local", help="Run on a Ray cluster: its address, auto, or local to start one here."),
]


def settings_of(
    assignments: list[str] | None, *, policy: str | None = None, rounds: int | None = None, seed: int | None = None
) -> dict[str, Any]:
    """``--set``, then the options with names of their own, as ``{"section.key": value}``."""
    named = {"policy.name": policy, "run.rounds": rounds, "run.seed": seed}
    given = {name: value for name, value in named.items() if value is not None}
    return dict(parse_assignment(text) for text in assignments or []) | given


def configuration(
    path: Path | None,
    assignments: list[str] | None,
    *,
    policy: str | None = None,
    rounds: int | None = None,
    seed: int | None = None,
) -> Config:
    """Defaults, then the file, then the options.

    Code of the user's is looked for beside the file, then in the folder one works in.
    """
    return load_config(path, settings_of(assignments, policy=policy, rounds=rounds, seed=seed), code_in=[Path.cwd()])


def given_settings(
    path: Path | None, assignments: list[str] | None, *, policy: str | None, rounds: int | None, seed: int | None
) -> dict[str, Any]:
    """What the file and the options say, and no defaults: ``{"section.key": value}``."""
    found = {}
    for section, keys in (read_toml(path) if path is not None else {}).items():
        for key, value in keys.items():
            found[f"{section}.{key}"] = seen_from(path.parent, f"{section}.{key}", value) if path is not None else value
    return {**found, **settings_of(assignments, policy=policy, rounds=rounds, seed=seed)}
