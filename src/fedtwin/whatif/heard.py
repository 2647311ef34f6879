"""What the server has heard of every device up to a moment: links, processors, samples, and questions without an answer."""

from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from fedtwin.runs import Run
from fedtwin.runs.rows import Answers, Floats, Ints, rows_of
from fedtwin.runs.simulated import SimulatedRun

COLUMNS = [field.name for field in fields(Answers) if field.name != "silent"]
LEAST_PAIRS = 100
NO_TASK = "no task"
"""Of a device that had answered, and was given none: the run was paused meanwhile, or the device drained."""


def answers_of(run: Run) -> Answers:
    """The rows of a simulation or a live run; of a synchronous round that is not there whole, none."""
    if isinstance(run, SimulatedRun):
        rows = rows_of(run.start, run.rounds, run.config, finished=run.finished, where=repr(str(run.path)))
        return rows.only(slice(None))
    both = pa.concat_tables([run.start.select(COLUMNS), run.rounds.select(COLUMNS)])
    columns = {name: both[name].to_numpy() for name in COLUMNS}
    gain, cpu_hz = columns["gain"], columns["cpu_hz"]
    told = np.isfinite(gain) & (gain > 0.0) & np.isfinite(cpu_hz) & (cpu_hz > 0.0)
    reasons = pa.concat_tables([run.start.select(["decline_reason"]), run.rounds.select(["decline_reason"])])["decline_reason"]
    turned_away = np.array([str(reason).startswith(NO_TASK) for reason in reasons.to_pylist()], dtype=bool)
    return Answers(**columns, silent=~told).only(told | ~turned_away)


@dataclass(frozen=True)
class Heard:
    """Of every device how much was heard, and the sums that estimates are made of."""

    counts: Ints
    gain_sums: Floats
    log_gain_sum: float
    log_gain_scatter: float
    cpu_sums: Floats
    cpu_scatter: float
    least_cpu_hz: float
    asked: int
    silent: int
    lag_correlation: float | None
    """Between one log gain of a device and its next; None where too few pairs tell."""

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def freedom(self) -> int:
        """How many of what was heard is not the first of its device."""
        return int(np.maximum(self.counts - 1, 0).sum())


def heard_of(rows: Answers, devices: int) -> Heard:
    """A decline of the first dispatches was told to nobody."""
    asked = rows.only(~(rows.declined & (rows.round == 0)))
    told = asked.only(~asked.silent)
    counts = np.bincount(told.device, minlength=devices)
    logs = np.log(told.gain)
    of_logs, of_cpus = (_residuals(told.device, values, counts) for values in (logs, told.cpu_hz))
    return Heard(
        counts,
        _sums(told.device, told.gain, devices),
        float(logs.sum()),
        float(np.square(of_logs).sum()),
        _sums(told.device, told.cpu_hz, devices),
        float(np.square(of_cpus).sum()),
        float(told.cpu_hz.min()) if len(told) else 0.0,
        len(asked),
        int(asked.silent.sum()),
        _lag_correlation(told.device, of_logs),
    )


def _sums(device: Ints, values: Floats, devices: int) -> Floats:
    sums = np.zeros(devices)
    np.add.at(sums, device, values)
    return sums


def _residuals(device: Ints, values: Floats, counts: Ints) -> Floats:
    means = _sums(device, values, len(counts)) / np.maximum(counts, 1)
    found: Floats = values - means[device]
    return found


def _lag_correlation(device: Ints, residuals: Floats) -> float | None:
    order = np.argsort(device, kind="stable")
    device, residuals = device[order], residuals[order]
    pairs = device[1:] == device[:-1]
    if pairs.sum() < LEAST_PAIRS or not residuals.any():
        return None
    return float((residuals[1:] * residuals[:-1])[pairs].mean() / np.square(residuals).mean())


def spreads_of(rows: Answers, samples: Floats) -> Floats:
    """By which part of D_n a device's samples were seen to stray, 0 where they never did.

    The largest of n steps is below the bound by one part of n + 1; of a device heard less than four times it is the fleet's.
    """
    taken = rows.only(~rows.declined)
    stray = np.abs(taken.samples / samples[taken.device] - 1.0)
    most, counts = np.zeros(len(samples)), np.bincount(taken.device, minlength=len(samples))
    np.maximum.at(most, taken.device, stray)
    if not most.any():
        return most
    most = most * (counts + 1) / np.maximum(counts, 1)
    well_heard = counts >= 4
    usual = float(np.median(most[well_heard])) if well_heard.any() else float(most.max())
    return np.minimum(np.where(well_heard, most, usual), 0.9)
