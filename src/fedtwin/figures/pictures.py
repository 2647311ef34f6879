"""Pictures as bytes and files: the same picture has the same bytes, and a file is there whole or not at all."""

import io
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtwin.errors import FedtwinError
from fedtwin.records.checksums import write_together

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Any = {"svg.hashsalt": "fedtwin", "font.size": 9.0, "axes.grid": True, "grid.alpha": 0.3}
METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def require_matplotlib() -> None:
    """Before any work is done for a picture."""
    if find_spec("matplotlib") is None:
        raise FedtwinError("Figures need matplotlib: pip install 'fedtwin[sim]'.")


def picture_bytes(picture: "Figure", kind: str) -> bytes:
    """The picture as PNG or SVG, without dates and names of programs."""
    from matplotlib import rc_context

    file = io.BytesIO()
    with rc_context(STYLE):
        picture.savefig(file, format=kind, dpi=150 if kind == "png" else "figure", metadata=METADATA[kind])
    return file.getvalue()


def require_a_place(path: Path, *, overwrite: bool) -> None:
    """Before any work is done for this file."""
    if path.suffix.removeprefix(".") not in METADATA:
        raise FedtwinError(f"out = {str(path)!r} is no picture: its name must end in .png or .svg.")
    if path.exists() and not overwrite:
        raise FedtwinError(f"{str(path)!r} exists already: name another picture, or say --overwrite (overwrite=True).")


def save_picture(picture: "Figure", path: Path) -> None:
    """PNG or SVG, by the ending of the name."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_together(path.parent, {path.name: picture_bytes(picture, path.suffix.removeprefix("."))})
    except OSError as error:
        raise FedtwinError(f"out = {str(path)!r} cannot be written: {error.strerror}.") from None
