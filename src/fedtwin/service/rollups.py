"""How a property of a device went: mean, least, most, median and 95th percentile of equal parts of the clock."""

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.formulas.power import REASONS, UNAVAILABLE
from fedtwin.runs import Run
from fedtwin.service.properties import BY_PATH, Property
from fedtwin.service.telling import UnansweredError

Series = tuple[NDArray[np.float64], NDArray[np.float64]]
HAS_HISTORY = tuple(path for path, one in BY_PATH.items() if one.series is not None)
NEEDED: dict[str, tuple[str, ...]] = {"energy_j": ("compute_j", "upload_j"), "time_s": ("compute_s", "upload_s")}


def history(run: Run, device: int, path: str, buckets: int, from_s: float | None, to_s: float | None) -> dict[str, Any]:
    """Parts in which nothing was heard have a count of 0."""
    one = BY_PATH.get(path)
    if one is None or one.series is None:
        raise UnansweredError(404, f"property = {path[:100]!r} has no history: {', '.join(HAS_HISTORY)} have.")
    clock_s, values = _series(run, device, one)
    ends = run.moment().seconds
    first_s, last_s = from_s or 0.0, ends if to_s is None else to_s
    edges = np.linspace(first_s, max(last_s, first_s), buckets + 1)
    begins = np.searchsorted(clock_s, edges[:-1], side="left")
    stops = np.append(begins[1:], np.searchsorted(clock_s, edges[-1], side="right"))
    parts = zip(edges[:-1].tolist(), edges[1:].tolist(), begins.tolist(), stops.tolist(), strict=True)
    rolled = [{"from_s": low, "to_s": high, **_rolled(values[begin:stop])} for low, high, begin, stop in parts]
    return {"property": path, "unit": one.unit, "of": one.series, "buckets": rolled}


def _rolled(values: NDArray[np.float64]) -> dict[str, Any]:
    if not len(values):
        return {"count": 0, "mean": None, "min": None, "max": None, "p50": None, "p95": None}
    p50, p95 = np.percentile(values, (50, 95))
    found = {"mean": values.mean(), "min": values.min(), "max": values.max(), "p50": p50, "p95": p95}
    return {"count": len(values), **{name: float(value) for name, value in found.items()}}


def _series(run: Run, device: int, one: Property) -> Series:
    """Of every time something was heard of it: each answer of the device, or each update it took."""
    name = one.series or ""
    if name == "train_loss":
        return _losses(run, device)
    columns = NEEDED.get(name, (name,))
    needed = ("clock_s", "device", "declined", "decline_reason", *columns)
    start = {column: run.start[column].to_numpy() for column in needed}
    pieces = [_heard(rows, device, name, columns) for rows in chain([start], run.batches(*needed))]
    return _in_order(*(np.concatenate([piece[place] for piece in pieces]) for place in range(2)))


def _heard(rows: dict[str, NDArray[Any]], device: int, name: str, columns: tuple[str, ...]) -> Series:
    own = np.flatnonzero(rows["device"] == device)
    rows = {column: values[own] for column, values in rows.items()}
    declined = rows["declined"].astype(bool)
    counts = ~declined
    if name in ("gain", "cpu_hz"):
        counts |= rows["decline_reason"] != REASONS[UNAVAILABLE]
    elif name == "queue":
        counts |= True
    values = np.sum([rows[column].astype(float) for column in columns], axis=0)
    counts &= ~np.isnan(values)
    return rows["clock_s"][counts], values[counts]


def _losses(run: Run, device: int) -> Series:
    """A loss is of the device whose upload has arrived; in synchronous mode of the one that was asked."""
    if run.config.learning is None:
        return np.zeros(0), np.zeros(0)
    whose = "device" if run.config.run.mode == "sync" else "arrived"
    rows = run.columns("clock_s", "round", whose, "train_loss")
    values = rows["train_loss"].astype(float)
    own = (rows[whose] == device) & ~np.isnan(values)
    if whose == "arrived":
        own &= np.diff(rows["round"], prepend=0) > 0
    return _in_order(rows["clock_s"][own], values[own])


def _in_order(clock_s: NDArray[np.float64], values: NDArray[np.float64]) -> Series:
    order = np.argsort(clock_s, kind="stable")
    return clock_s[order], values[order]
