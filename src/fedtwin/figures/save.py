"""One figure as files: PNG to look at, SVG to print, CSVs to check."""

import csv
import io
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from fedtwin.errors import FedtwinError
from fedtwin.experiments.specs.figure import Experiment
from fedtwin.figures.kinds import TableRow, kind_of
from fedtwin.figures.pictures import STYLE, picture_bytes, require_matplotlib
from fedtwin.figures.table import Tables
from fedtwin.records.checksums import write_together

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE_INCHES = (7.0, 4.6)
SUFFIXES = (".png", ".svg", ".csv")
LETTERS_PER_LINE = 105


def figure_paths(folder: Path, experiment: Experiment) -> list[Path]:
    kind = kind_of(experiment)
    others = [f"_{name}.csv" for name, made in (("seeds", kind.per_seed), ("summary", kind.summary)) if made is not None]
    return [folder / f"figure_{experiment.figure}{end}" for end in (*SUFFIXES, *others)]


def draw_figure(experiment: Experiment, note: str, table: list[TableRow]) -> "Figure":
    """The picture of a table; ``note`` says under it what it rests on."""
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        picture = Figure(figsize=SIZE_INCHES, layout="constrained")
        kind_of(experiment).draw(picture, experiment, table)
        picture.suptitle(experiment.title)
        picture.supxlabel(textwrap.fill(note, LETTERS_PER_LINE), fontsize="medium")
    return picture


def save_figure(folder: Path, experiment: Experiment, note: str, tables: Tables) -> list[Path]:
    """Draws the table and writes all files, or none."""
    picture = draw_figure(experiment, note, tables.rows)
    paths = figure_paths(folder, experiment)
    csvs = [csv_bytes(rows) for rows in (tables.rows, *tables.others.values())]
    contents = (picture_bytes(picture, "png"), picture_bytes(picture, "svg"), *csvs)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_together(folder, {path.name: content for path, content in zip(paths, contents, strict=True)})
    except OSError as error:
        raise FedtwinError(f"out = {str(folder)!r} cannot be written: {error.strerror}.") from None
    return paths


def csv_bytes(rows: list[TableRow]) -> bytes:
    data = io.StringIO(newline="")
    writer = csv.DictWriter(data, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return data.getvalue().encode()
