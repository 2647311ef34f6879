"""``fedtwin figure``: the paper's figures, from the committed experiments."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedtwin.cli.options import RayOption, SetOption, WorkersOption, settings_of
from fedtwin.cli.screen import say


class ProfileName(StrEnum):
    quick = "quick"
    full = "full"


def figure(
    names: Annotated[
        list[str],
        typer.Argument(metavar="3|4|5|6|7|8|9|regret|decomposition|queues|theorem1|digits...", help="One or several figures."),
    ],
    profile: Annotated[
        ProfileName, typer.Option(help="quick: fewer seeds and rounds; full: what the docs show.")
    ] = ProfileName.full,
    schemes: Annotated[
        str | None, typer.Option(help="Other schemes or policies, with commas between: another figure, with another name.")
    ] = None,
    assignments: SetOption = None,
    out: Annotated[Path, typer.Option(help="Folder for PNG, SVG and CSV.")] = Path("out/figures"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace pictures that are there.")] = False,
    workers: WorkersOption = None,
    ray: RayOption = None,
) -> None:
    """Draw figures of the paper: PNG, SVG and the CSV behind them. An interrupted figure goes on where it stopped."""
    from fedtwin.figures.figure import figures

    made = figures(
        names,
        profile="quick" if profile is ProfileName.quick else "full",
        schemes=schemes,
        settings=settings_of(assignments),
        out=out,
        overwrite=overwrite,
        workers=workers,
        ray=ray,
        progress=True,
        say=say,
    )
    for one in made:
        for path in one.paths:
            typer.echo(str(path))
