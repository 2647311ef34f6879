"""Which data sets are files of the user's: a ``.npz``, a ``.parquet``, or a folder of either, written with a slash."""

from pathlib import Path

SUFFIXES = (".npz", ".parquet")


def is_file_of_data(name: str) -> bool:
    return name.endswith(SUFFIXES) or "/" in name


def files_of_data(folder: Path) -> list[Path]:
    """The files of samples in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
