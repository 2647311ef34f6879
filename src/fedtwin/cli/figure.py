"""``fedtwin figure``: the paper's figures, from the committed experiments."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedtwin.cli.options import RayOption, SetOption, WorkersOption, settings_of
from fedtwin.cli.screen import say
from fedtwin.errors import NotFinishedError
from fedtwin.extras import require_sim

NOT_FINISHED = 4


class ProfileName(StrEnum):
    quick = "quick"
    full = "full"


def figure(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="3|4|5|6|7|8|9|6-energy|…|9-energy|regret|decomposition|queues|theorem1|digits|headline...",
            help="One or several figures.",
        ),
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
    minutes: Annotated[
        float | None, typer.Option(help="No run begins after so many minutes; the same command goes on (exit code 4).")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Most runs of this call; the same command goes on (exit code 4).")] = None,
    workers: WorkersOption = None,
    ray: RayOption = None,
) -> None:
    """Draw figures of the paper: PNG, SVG and the CSV behind them. An interrupted figure goes on where it stopped."""
    require_sim("fedtwin figure")
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
        minutes=minutes,
        runs=runs,
    )
    try:
        for one in made:
            for path in one.paths:
                typer.echo(str(path))
    except NotFinishedError as error:
        say(f"Not finished: {error}")
        raise typer.Exit(NOT_FINISHED) from None
