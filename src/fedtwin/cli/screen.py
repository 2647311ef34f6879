"""What a person sees: tables on standard output, progress on standard error if it is a terminal."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedtwin.cli.terminal import in_letters_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SPEED_OVER_S = 600.0


def print_json(data: Mapping[str, Any]) -> None:
    """One object; infinity and NaN, which JSON lacks, are null."""
    typer.echo(json.dumps(plain(data), indent=2, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], essential: int | None = None) -> None:
    """A table, the first column to the left and the others to the right. A narrow terminal gets the essential columns only."""
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    console, wide = Console(), Console(width=500)

    def shown(text: str) -> str:
        return in_letters_of(console.encoding, text)

    def table_of(count: int) -> Table:
        table = Table(title=shown(title), title_justify="left", title_style="bold", box=box.SIMPLE)
        for k, column in enumerate(columns[:count]):
            table.add_column(shown(column), justify="right" if k else "left", no_wrap=True)
        for row in rows:
            table.add_row(*map(shown, row[:count]))
        return table

    table = table_of(len(columns))
    width = Measurement.get(wide, wide.options, table).maximum
    if console.is_terminal and width > console.width and essential is not None:
        table = table_of(essential)
        width = Measurement.get(wide, wide.options, table).maximum
    console.width = max(console.width, width, len(title))
    console.print(table)


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left. Call it with how much is done."""
    with _bar(what, total) as (bar, task):
        shown, step = 0, max(1, total // 1000)

        def update(done: int) -> None:
            nonlocal shown
            if done >= shown + step:
                shown = done
                bar.update(task, completed=done)

        yield update


@contextmanager
def counting_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left. Call it with how many more are done."""
    with _bar(what, total) as (bar, task):
        yield lambda more: bar.advance(task, more)


@contextmanager
def _bar(what: str, total: int) -> Iterator[tuple["Progress", "TaskID"]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    quiet = not console.is_terminal
    with Progress(*columns, console=console, disable=quiet, transient=True, speed_estimate_period=SPEED_OVER_S) as bar:
        yield bar, bar.add_task(what, total=total)


@contextmanager
def saying_when_interrupted(sentence: str | None) -> Iterator[None]:
    """What an interruption leaves, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if sentence is not None:
            typer.echo(sentence, err=True)
        raise


def kept_when_interrupted(journal: Path | None) -> AbstractContextManager[None]:
    """Says, when a batch is interrupted, whether what is finished is lost."""
    if journal is not None:
        return saying_when_interrupted(f"Finished runs are kept in {journal}: the same command goes on from there.")
    return saying_when_interrupted("Finished runs are lost: with --out DIR they would be kept, and the same command go on.")


def interval(low: float, high: float, sign: str = "") -> str:
    """An interval, or a dash where one seed leaves none."""
    return "—" if math.isnan(low) else f"{low:{sign}.4f} … {high:{sign}.4f}"


def number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) and not float(value).is_integer() else f"{value:g}"


def plain(value: Any) -> Any:
    """Data as JSON has it: infinity and NaN are null."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
