"""One figure as three files: PNG to look at, SVG to print, CSV to check."""

import csv
import io
from importlib.util import find_spec
from pathlib import Path

from fedtwin.errors import FedtwinError
from fedtwin.experiments.spec import Experiment
from fedtwin.experiments.tables import TableRow
from fedtwin.figures import DRAW
from fedtwin.records.checksums import write_together

SIZE_INCHES = (7.0, 4.6)
SUFFIXES = (".png", ".svg", ".csv")


def figure_paths(folder: Path, figure: str) -> list[Path]:
    return [folder / f"figure_{figure}{suffix}" for suffix in SUFFIXES]


def require_matplotlib() -> None:
    """Before any work is done for a picture."""
    if find_spec("matplotlib") is None:
        raise FedtwinError("Figures need matplotlib: pip install 'fedtwin[figures]'.")


def save_figure(folder: Path, experiment: Experiment, note: str, table: list[TableRow]) -> list[Path]:
    """Draws the table and writes all three files, or none; ``note`` says under the picture what it rests on."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    png, svg = io.BytesIO(), io.BytesIO()
    with rc_context({"svg.hashsalt": "fedtwin", "font.size": 9.0, "axes.grid": True, "grid.alpha": 0.3}):
        picture = Figure(figsize=SIZE_INCHES, layout="constrained")
        DRAW[experiment.kind](picture, experiment, table)
        picture.suptitle(experiment.title)
        picture.supxlabel(note, fontsize="medium")
        picture.savefig(png, format="png", dpi=150, metadata={"Software": None})
        picture.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    data = io.StringIO(newline="")
    writer = csv.DictWriter(data, fieldnames=list(table[0]))
    writer.writeheader()
    writer.writerows(table)
    paths = figure_paths(folder, experiment.figure)
    contents = (png.getvalue(), svg.getvalue(), data.getvalue().encode())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_together(folder, {path.name: content for path, content in zip(paths, contents, strict=True)})
    except OSError as error:
        raise FedtwinError(f"--out {str(folder)!r} cannot be written: {error.strerror}.") from None
    return paths
