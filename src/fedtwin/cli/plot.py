"""``fedtwin plot``: a picture of one run or several."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedtwin.extras import require_sim


class Against(StrEnum):
    round = "round"
    clock = "clock"
    energy = "energy"


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN_FOLDER...", help="Runs, finished or not.")],
    against: Annotated[Against, typer.Option(help="What lies on the horizontal axis.")] = Against.round,
    out: Annotated[Path, typer.Option(help="Picture to write, PNG or SVG by the ending of its name.")] = Path("out/plot.png"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a picture that is there.")] = False,
) -> None:
    """Draw cost, queue, accuracy and declines of runs against rounds, the clock or energy."""
    require_sim("fedtwin plot")
    from fedtwin.figures.runs import plot as draw

    draw(runs, against=against.value, out=out, overwrite=overwrite)
    typer.echo(str(out))
