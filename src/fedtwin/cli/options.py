"""Options that several commands share, and how they become a configuration."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedtwin.config import Config, load_config, parse_assignment

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


def configuration(
    path: Path | None,
    assignments: list[str] | None,
    *,
    policy: str | None = None,
    rounds: int | None = None,
    seed: int | None = None,
) -> Config:
    """Defaults, then the file, then ``--set``, then the options with names of their own.

    Code of the user's is looked for beside the file, then in the folder one works in.
    """
    overrides: dict[str, Any] = dict(parse_assignment(text) for text in assignments or [])
    named = {"policy.name": policy, "run.rounds": rounds, "run.seed": seed}
    overrides |= {name: value for name, value in named.items() if value is not None}
    return load_config(path, overrides, code_in=[Path.cwd()])
