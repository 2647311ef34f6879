"""What a person sees: tables and JSON on standard output, sentences on standard error."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from fedtwin.cli.terminal import in_letters_of
from fedtwin.experiments.plain import plain
from fedtwin.experiments.telling import progress_bar as progress_bar


def print_json(data: Mapping[str, Any]) -> None:
    """One object; infinity and NaN, which JSON lacks, are null."""
    typer.echo(json.dumps(plain(data), indent=2, allow_nan=False))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], essential: int | None = None, note: str | None = None
) -> None:
    """A table, the first column to the left and the others to the right. A narrow terminal gets the essential columns only.

    ``note`` stands under it, about columns that are not essential.
    """
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
    if note is not None and len(table.columns) == len(columns):
        console.print(shown(note), highlight=False, soft_wrap=True)


def say(sentence: str) -> None:
    """One sentence on standard error."""
    typer.echo(sentence, err=True)


def interval(low: float, high: float, sign: str = "") -> str:
    """An interval, or a dash where one seed leaves none."""
    return "—" if math.isnan(low) else f"{low:{sign}.4f} … {high:{sign}.4f}"


def number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) and not float(value).is_integer() else f"{value:g}"
