"""A user's own devices, from a CSV file with one line each.

Columns: ``samples``, ``cpu_hz`` (the mean), and where the device is, in one of four ways: ``x_m`` and ``y_m`` (the server
at the origin), ``distance_m``, ``path_gain`` (linear), or ``path_gain_db``. A column ``name`` (or ``device``) names the
devices in the records. What may be a device's own (``OWN``) has columns too; without one, the configured value is everybody's.
Any other column is an error: what it says would be ignored.
"""

import csv
import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedtwin.errors import FedtwinError
from fedtwin.files import plain_file

POSITION_COLUMNS = (("x_m", "y_m"), ("distance_m",), ("path_gain",), ("path_gain_db",))
NAME_COLUMNS = ("name", "device")
OWN = {
    "max_power_w": (1e-40, 1e40),
    "cycles_per_sample": (1e-40, 1e40),
    "update_bits": (1e-40, 1e40),
    "max_time_s": (1e-40, 1e40),
    "max_energy_j": (1e-40, 1e40),
    "samples_spread": (0.0, 0.99),
}
"""What may be a device's own, with the least and the most that is allowed."""
ALLOWED = ("samples", "cpu_hz", *NAME_COLUMNS, *(column for columns in POSITION_COLUMNS for column in columns), *OWN)


class FleetRow(NamedTuple):
    """One device as its owner describes it; exactly one of distance and path gain is given, of ``own`` what has a column."""

    distance_m: float | None
    path_gain: float | None
    cpu_hz_mean: float
    samples: int
    own: Mapping[str, float]
    name: str | None = None


def read_fleet_csv(path: Path) -> list[FleetRow]:
    """Every device of the file, or one sentence about the first thing that is wrong with it."""
    try:
        with plain_file(path).open(newline="", encoding="utf-8-sig") as lines:
            table = csv.DictReader(lines)
            columns = [name.strip() for name in table.fieldnames or []]
            table.fieldnames = columns
            rows = [(table.line_num, row) for row in table]
    except OSError as error:
        raise FedtwinError(f"fleet.file = {str(path)!r} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise FedtwinError(f"fleet.file = {str(path)!r} cannot be read: {error}.") from None
    if len(set(columns)) < len(columns):
        raise FedtwinError(f"fleet.file = {str(path)!r} has a column twice: {columns}.")
    _refuse_unknown(path, columns)
    positions = [names for names in POSITION_COLUMNS if set(names) <= set(columns)]
    if len(positions) > 1:
        raise FedtwinError(
            f"fleet.file = {str(path)!r} says where a device is in {len(positions)} ways: {positions}; keep one."
        )
    position = positions[0] if positions else None
    missing = [name for name in ("samples", "cpu_hz") if name not in columns]
    if position is None:
        missing.append("a position (x_m and y_m, distance_m, path_gain or path_gain_db)")
    if position is None or missing:
        raise FedtwinError(f"fleet.file = {str(path)!r} has no column {', nor '.join(missing)}; it has {columns}.")
    if not rows:
        raise FedtwinError(f"fleet.file = {str(path)!r} lists no device: at least one line under the header is needed.")
    devices = [_parse(path, line, row, position) for line, row in rows]
    naming = next((column for column in NAME_COLUMNS if column in columns), None)
    if naming is None:
        return devices
    return [device._replace(name=name) for device, name in zip(devices, _names(path, rows, naming), strict=True)]


def _refuse_unknown(path: Path, columns: list[str]) -> None:
    for place, column in enumerate(columns, start=1):
        if not column:
            raise FedtwinError(f"fleet.file = {str(path)!r}: column {place} has no name.")
        if column not in ALLOWED:
            close = difflib.get_close_matches(column, ALLOWED, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            allowed = ", ".join(ALLOWED)
            raise FedtwinError(f"fleet.file = {str(path)!r}: no column {column} is known{hint}; allowed are {allowed}.")
    if ("x_m" in columns) != ("y_m" in columns):
        there, missing = ("x_m", "y_m") if "x_m" in columns else ("y_m", "x_m")
        raise FedtwinError(f"fleet.file = {str(path)!r} has {there} without {missing}.")
    if set(NAME_COLUMNS) <= set(columns):
        raise FedtwinError(f"fleet.file = {str(path)!r} has both {' and '.join(NAME_COLUMNS)}: keep one.")


def _names(path: Path, rows: list[tuple[int, dict[str, str]]], column: str) -> list[str]:
    lines: dict[str, int] = {}
    for line, row in rows:
        name = (row[column] or "").strip()
        if not name:
            raise FedtwinError(f"fleet.file = {str(path)!r}, line {line}: {column} = {row[column]!r} is empty.")
        if name in lines:
            raise FedtwinError(
                f"fleet.file = {str(path)!r}, line {line}: {column} = {name!r} stands in line {lines[name]} too."
            )
        lines[name] = line
    return list(lines)


def _parse(path: Path, line: int, row: dict[str, str], position: tuple[str, ...]) -> FleetRow:
    def number(column: str, low: float, high: float) -> float:
        try:
            value = float(row[column])
        except (TypeError, ValueError):
            value = math.nan
        if "_" in (row[column] or ""):  # which Python reads over
            value = math.nan
        if not low <= value <= high:
            raise FedtwinError(
                f"fleet.file = {str(path)!r}, line {line}: {column} = {row[column]!r} is not a number from {low:g} to {high:g}."
            )
        return value

    if None in row:  # where csv puts the cells that are too many
        raise FedtwinError(f"fleet.file = {str(path)!r}: line {line} has more cells than the header.")
    samples = number("samples", 1, 1e12)
    if samples != int(samples):
        raise FedtwinError(f"fleet.file = {str(path)!r}, line {line}: samples = {row['samples']!r} is not a whole number.")
    distance_m = path_gain = None
    if position == ("x_m", "y_m"):
        distance_m = math.hypot(number("x_m", -1e7, 1e7), number("y_m", -1e7, 1e7))
        if distance_m < 1e-3:
            raise FedtwinError(f"fleet.file = {str(path)!r}, line {line}: the device stands on the server (0 m).")
    elif position == ("distance_m",):
        distance_m = number("distance_m", 1e-3, 1e7)
    elif position == ("path_gain",):
        path_gain = number("path_gain", 1e-30, 1e30)
    else:
        path_gain = 10.0 ** (number("path_gain_db", -300, 300) / 10.0)
    own = {column: number(column, *bounds) for column, bounds in OWN.items() if column in row}
    return FleetRow(distance_m, path_gain, number("cpu_hz", 1, 1e15), int(samples), own)
