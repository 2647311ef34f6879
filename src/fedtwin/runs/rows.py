"""The rows of a simulation as plain arrays: the first dispatches (round 0), then every round, and where each round begins."""

from dataclasses import dataclass
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
COLUMNS = (
    *("round", "clock_s", "arrived", "device", "gain", "cpu_hz", "samples", "compute_s", "upload_s", "compute_j"),
    *("upload_j", "cost", "queue", "staleness", "declined", "decline_reason", "time_ok", "energy_ok"),
)
LOSS = "train_loss"


@dataclass(frozen=True)
class Rows:
    """``begins[t - 1]`` is the first row of round t, ``slowest_s[t - 1]`` how long it took if it is synchronous: the latency of
    its slowest device, or its timeout. Who is later than that is ``dropped``.

    A device that was not there when it was asked is ``silent``: nothing is learned of it.
    """

    round: Ints
    clock_s: Floats
    arrived: Ints
    device: Ints
    gain: Floats
    cpu_hz: Floats
    samples: Ints
    compute_s: Floats
    upload_s: Floats
    compute_j: Floats
    upload_j: Floats
    cost: Floats
    queue: Floats
    staleness: Ints
    declined: Flags
    silent: Flags
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
    """The rows of both tables, or one sentence where they are no rows of this run.

    The last synchronous round of a run that has not ended is left out if it is not there whole: how long it took is not known.
    """
    both = pa.concat_tables([start.select(COLUMNS), rounds.select(COLUMNS)])
    columns = {name: _array(both[name]) for name in COLUMNS if name != "decline_reason"}
    columns["silent"] = _flags(pc.equal(both["decline_reason"], pa.scalar(REASONS[UNAVAILABLE])))
    columns["train_loss"] = np.full(len(columns["round"]), np.nan)
    if LOSS in rounds.column_names:
        columns["train_loss"][start.num_rows :] = _array(rounds[LOSS])
    begins = _begins(columns["round"], start.num_rows, where)
    if config.run.mode == "sync" and not finished and not _last_is_whole(columns, begins, config):
        columns = {name: column[: begins[-1]] for name, column in columns.items()}
        begins = begins[:-1]
    devices = columns["device"]
    if len(devices) and not 0 <= devices.min() <= devices.max() < config.fleet.devices:
        raise FedtwinError(f"{where} is damaged: its rounds name devices that are not in the fleet.")
    timeout_s = timeout_of(config)
    slowest_s = np.minimum(_slowest(columns, begins, config.objective.max_time_s), timeout_s)
    dropped = ~columns["declined"] & (columns["compute_s"] + columns["upload_s"] > timeout_s)
    return Rows(**columns, begins=begins, slowest_s=slowest_s, dropped=dropped)


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
    return first + np.flatnonzero(np.diff(round_[first:], prepend=0))


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
