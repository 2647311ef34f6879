"""``fedtwin sweep``: a grid of settings × schemes × seeds, as one table of summaries."""

from pathlib import Path
from typing import Annotated

import typer

from fedtwin.cli.options import RayOption, WorkersOption
from fedtwin.cli.screen import say
from fedtwin.extras import require_sim

SOME_RUNS_FAILED = 3


def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="Schemes, seeds, base settings and the grid.")],
    out: Annotated[Path | None, typer.Option(help="Folder for summaries.parquet; out/sweeps/SPEC by default.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished sweep.")] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Do the runs that failed again, and only those.")
    ] = False,
    workers: WorkersOption = None,
    ray: RayOption = None,
) -> None:
    """Run a grid of settings × schemes × seeds into one table of summaries. A killed sweep goes on where it stopped.

    Runs that fail, or in which every device always declines, are rows with the reason in the column failed; the exit code is 3.
    """
    require_sim("fedtwin sweep")
    from fedtwin.experiments.sweep import sweep as run_sweep

    found = run_sweep(
        spec,
        out=out or Path("out/sweeps") / spec.stem,
        overwrite=overwrite,
        retry_failed=retry_failed,
        workers=workers,
        ray=ray,
        progress=True,
        say=say,
    )
    typer.echo(f"{len(found)} runs: {found.path}")
    if found.failures:
        say(f"warning: {found.failures}")
        raise typer.Exit(SOME_RUNS_FAILED)
