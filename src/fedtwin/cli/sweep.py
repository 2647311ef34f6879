"""``fedtwin sweep``: a grid of settings × schemes × seeds, as one table of summaries."""

from pathlib import Path
from typing import Annotated

import typer

from fedtwin.cli.options import RayOption, WorkersOption
from fedtwin.cli.screen import counting_bar, kept_when_interrupted

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
    from fedtwin.experiments.backends import open_backend
    from fedtwin.experiments.sweep import Sweep

    chosen = Sweep(spec, out or Path("out/sweeps") / spec.stem, overwrite=overwrite, retry_failed=retry_failed)
    with open_backend(workers, ray) as backend:
        if sentence := chosen.begun():
            typer.echo(sentence, err=True)
        with kept_when_interrupted(chosen.journal), counting_bar("runs", len(chosen)) as progress:
            path = chosen.run(backend=backend, progress=progress)
    typer.echo(f"{len(chosen)} runs: {path}")
    if sentence := chosen.failures:
        typer.echo(f"warning: {sentence}", err=True)
        raise typer.Exit(SOME_RUNS_FAILED)
