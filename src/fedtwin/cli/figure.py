"""``fedtwin figure``: the paper's figures, from the committed experiments."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedtwin.cli.options import RayOption, WorkersOption
from fedtwin.cli.screen import counting_bar, kept_when_interrupted
from fedtwin.errors import FedtwinError


class ProfileName(StrEnum):
    quick = "quick"
    full = "full"


def figure(
    names: Annotated[list[str], typer.Argument(metavar="3|4|5|6|7|8|9|regret|digits...", help="One or several figures.")],
    profile: Annotated[
        ProfileName, typer.Option(help="quick: fewer seeds and rounds; full: what the docs show.")
    ] = ProfileName.full,
    out: Annotated[Path, typer.Option(help="Folder for PNG, SVG and CSV.")] = Path("out/figures"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace pictures that are there.")] = False,
    workers: WorkersOption = None,
    ray: RayOption = None,
) -> None:
    """Draw figures of the paper: PNG, SVG and the CSV behind them. An interrupted figure goes on where it stopped."""
    from fedtwin.experiments.backends import open_backend
    from fedtwin.experiments.batch import begun
    from fedtwin.experiments.spec import Profile, load_experiment
    from fedtwin.experiments.tables import figure_jobs, figure_table
    from fedtwin.figures.save import figure_paths, require_matplotlib, save_figure

    require_matplotlib()
    experiments = [load_experiment(name) for name in names]
    there = [path for experiment in experiments for path in figure_paths(out, experiment.figure) if path.exists()]
    if there and not overwrite:
        raise FedtwinError(f"{str(there[0])!r} exists already: name another folder with --out, or say --overwrite.")
    kind: Profile = "quick" if profile is ProfileName.quick else "full"
    with open_backend(workers, ray) as backend:
        for experiment in experiments:
            journal = out / f".figure_{experiment.figure}.{kind}.jsonl"
            jobs = figure_jobs(experiment, kind)
            if sentence := begun(jobs, journal, "figure"):
                typer.echo(sentence, err=True)
            with kept_when_interrupted(journal), counting_bar(f"figure {experiment.figure}", len(jobs)) as progress:
                table = figure_table(experiment, kind, backend=backend, journal=journal, progress=progress)
            effort = experiment.profiles[kind]
            note = f"(mean and 95 % interval over {effort.seeds} seeds, {effort.rounds:,} rounds)"
            for path in save_figure(out, experiment, note, table):
                typer.echo(str(path))
            journal.unlink(missing_ok=True)
