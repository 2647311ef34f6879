"""The rows of a simulation as plain arrays: the first dispatches (round 0), then every round, and where each round begins."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.power import REASONS, UNAVAILABLE
from fedtwin.formulas.timeout import timeout_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
NOBODY = -1
SMALL = 2**29
"""Numbers and numbers of rows below it can be doubled in 32 bits."""
Column = Callable[[str], "pa.ChunkedArray[Any] | None"]
COLUMNS = (
    *("round", "clock_s", "arrived", "device", "gain", "cpu_hz", "samples", "compute_s", "upload_s", "compute_j"),
    *("upload_j", "cost", "queue", "staleness", "declined", "decline_reason", "time_ok", "energy_ok"),
)
LOSS = "train_loss"
LATE = ("compute_j", "upload_j", "cost", "queue")
"""What an index takes in one after the other, each once."""
NO_PART = ("staleness", "time_ok", "energy_ok")
"""What no part of a twin follows from."""


@dataclass(frozen=True)
class Answers:
    """What every device that was asked had to say, its first dispatches before the others. ``silent``: it told nothing, and
    what a simulation writes of it all the same is the truth, which nobody has heard.
    """

    round: Ints
    clock_s: Floats
    device: Ints
    gain: Floats
    cpu_hz: Floats
    samples: Ints
    compute_s: Floats
    upload_s: Floats
    compute_j: Floats
    upload_j: Floats
    cost: Floats
    declined: Flags
    silent: Flags

    def __len__(self) -> int:
        return len(self.round)

    @property
    def time_s(self) -> Floats:
        return self.compute_s + self.upload_s

    @property
    def energy_j(self) -> Floats:
        return self.compute_j + self.upload_j

    def only(self, chosen: "Flags | slice") -> "Answers":
        return Answers(**{field.name: getattr(self, field.name)[chosen] for field in fields(Answers)})


@dataclass(frozen=True)
class Rows(Answers):
    """``begins[t - 1]`` is the first row of round t, ``slowest_s[t - 1]`` how long it took if it is synchronous: the latency of
    its slowest device, or its timeout. Who is later than that is ``dropped``.

    A device that was not there when it was asked is ``silent``: nothing is learned of it.
    """

    arrived: Ints
    queue: Floats
    staleness: Ints
    train_loss: Floats
    time_ok: Flags
    energy_ok: Flags
    begins: Ints
    slowest_s: Floats
    dropped: Flags

    @property
    def total(self) -> int:
        return len(self.round)

    @property
    def rounds(self) -> int:
        return len(self.begins)


def rows_of(start: pa.Table, rounds: pa.Table, config: Config, *, finished: bool, where: str) -> Rows:
    """The rows of both tables, or one sentence where they are no rows of this run."""

    def column(name: str) -> "pa.ChunkedArray[Any] | None":
        return rounds[name] if name in rounds.column_names else None

    return rows_by_column(start, column, config, finished=finished, where=where, small=False)


def rows_by_column(
    start: pa.Table,
    rounds: Column,
    config: Config,
    *,
    finished: bool,
    where: str,
    small: bool = True,
    without: Collection[str] = (),
) -> Rows:
    """The same from one column of the rounds after the other, so that no two of them are held as they were read; ``small``
    keeps whole numbers in 32 bits where they fit. Columns that the rows are ``without`` are empty.

    The last synchronous round of a run that has not ended is left out if it is not there whole: how long it took is not known.
    """
    columns = {name: both(start, rounds, name, small=small) for name in COLUMNS if name not in (*without, "decline_reason")}
    reasons = [start["decline_reason"], _known(rounds("decline_reason"), "decline_reason")]
    columns["silent"] = np.concatenate([_flags(pc.equal(one, pa.scalar(REASONS[UNAVAILABLE]))) for one in reasons])
    losses, total = rounds(LOSS), len(columns["round"])
    columns["train_loss"] = _same(np.nan, total)
    if losses is not None:
        columns["train_loss"] = np.concatenate([np.full(start.num_rows, np.nan), _array(losses)])
    begins = _begins(columns["round"], start.num_rows, where)
    if config.run.mode == "sync" and not finished and not _last_is_whole(columns, begins, config):
        columns = {name: column[: begins[-1]] for name, column in columns.items()}
        begins = begins[:-1]
    devices = columns["device"]
    if len(devices) and not 0 <= devices.min() <= devices.max() < config.fleet.devices:
        raise FedtwinError(f"{where} is damaged: its rounds name devices that are not in the fleet.")
    timeout_s = timeout_of(config)
    slowest_s = _same(np.nan, len(begins))
    if config.run.mode == "sync" or not small:
        slowest_s = np.minimum(_slowest(columns, begins, config.objective.max_time_s), timeout_s)
    dropped = _same(False, total)
    if timeout_s < np.inf:
        dropped = ~columns["declined"] & (columns["compute_s"] + columns["upload_s"] > timeout_s)
    columns |= {name: np.zeros(0) for name in without}
    return Rows(**columns, begins=begins, slowest_s=slowest_s, dropped=dropped[: len(devices)])


def _same(value: Any, count: int) -> NDArray[Any]:
    """The same value everywhere, which takes the memory of one."""
    return np.broadcast_to(np.asarray(value), (count,))


def _known(column: "pa.ChunkedArray[Any] | None", name: str) -> "pa.ChunkedArray[Any]":
    if column is None:
        raise KeyError(name)
    return column


def both(start: pa.Table, rounds: Column, name: str, *, small: bool) -> NDArray[Any]:
    """The first dispatches, then the rounds."""
    found = np.concatenate([_array(start[name]), _array(_known(rounds(name), name))])
    if (
        small
        and found.dtype == np.int64
        and len(found) < SMALL
        and (not len(found) or -SMALL < found.min() <= found.max() < SMALL)
    ):
        return found.astype(np.int32)
    return found


def _flags(column: Any) -> Flags:
    flags: Flags = column.fill_null(pa.scalar(False)).to_numpy()  # of a chunked array
    return flags


def _array(column: "pa.ChunkedArray[Any]") -> NDArray[Any]:
    if column.null_count and not pa.types.is_floating(column.type):
        nothing = False if pa.types.is_boolean(column.type) else NOBODY
        column = column.fill_null(pa.scalar(nothing, column.type))
    return column.to_numpy()


def _begins(round_: Ints, first: int, where: str) -> Ints:
    require_numbered(round_[first:], where)
    if round_[:first].any():
        raise FedtwinError(f"{where} is damaged: its first dispatches are not of round 0.")
    found = first + np.flatnonzero(np.diff(round_[first:], prepend=0))
    return found.astype(np.int32) if round_.dtype == np.int32 else found


def require_numbered(round_: Ints, where: str, first: int | None = 1) -> None:
    """One sentence where a round is missing between two rows; ``first`` is that of the first row, if it is known."""
    if not len(round_):
        return
    steps = np.diff(round_)
    if (first is not None and round_[0] != first) or ((steps < 0) | (steps > 1)).any():
        raise FedtwinError(f"{where} is damaged: its rounds are not numbered 1, 2, 3, ….")


def _last_is_whole(columns: dict[str, NDArray[Any]], begins: Ints, config: Config) -> bool:
    """All the selections that were wanted have been made, or everybody was asked."""
    if not len(begins):
        return True
    taken = ~columns["declined"]
    before, now = int(taken[: begins[-1]].sum()), int(taken[begins[-1] :].sum())
    asked = len(taken) - int(begins[-1])
    return now == min(config.fleet.channels, config.run.rounds - before) or asked == config.fleet.devices


def _slowest(columns: dict[str, NDArray[Any]], begins: Ints, without_any_s: float) -> Floats:
    if not len(begins):
        return np.zeros(0)
    took = np.where(columns["declined"], -np.inf, columns["compute_s"] + columns["upload_s"])
    slowest = np.maximum.reduceat(took, begins)
    return np.where(np.isneginf(slowest), without_any_s, slowest)
