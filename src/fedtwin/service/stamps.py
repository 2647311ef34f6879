"""Whether the files of a run are those that were read."""

from contextlib import suppress
from pathlib import Path

from fedtwin.records.files import CONFIG_NAME, SUMMARY_NAME
from fedtwin.runs.run import MODEL_NAME, TABLES

STAMPED = (SUMMARY_NAME, CONFIG_NAME, MODEL_NAME, *(f"{table}.parquet" for table in TABLES))


def stamp_of(folder: Path) -> tuple[tuple[int, int, int] | None, ...] | None:
    """Of every file that answers are made of, once the run has written its last one; None before."""
    stamps = [_of_file(folder / name) for name in STAMPED]
    return None if stamps[0] is None else tuple(stamps)


def _of_file(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def fingerprint(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Changes whenever a file of the run does."""
    found = []
    for place in (folder, folder / "rounds.parquet"):
        with suppress(OSError):
            for path in place.iterdir():
                with suppress(OSError):
                    stat = path.stat()
                    found.append((str(path), stat.st_mtime_ns, stat.st_size))
    return frozenset(found)
