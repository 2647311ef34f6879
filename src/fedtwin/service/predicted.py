"""What the twin predicted of every update before it, beside what came of it.

Of a live run its tasks hold both: the mean of what the device had taken before, and what was measured. Of a simulation the
prediction is made again, by the power rule at what the twin knew then: the link it believed in, and the CPUs it had heard of.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedtwin.formulas.power import REASONS, UNAVAILABLE
from fedtwin.runs import Run
from fedtwin.service.forecasts import power_rule_of, predictor
from fedtwin.twin import Twin

MOST = 20_000
Floats = NDArray[np.float64]
ROWS = (
    *("round", "device", "declined", "decline_reason", "known_gain", "cpu_hz", "samples", "compute_s", "upload_s"),
    *("compute_j", "upload_j", "cost"),
)


class Compared(NamedTuple):
    """Updates in their order: whose, what was predicted and what happened. With a reason where nothing can be."""

    device: NDArray[np.int64]
    predictions: dict[str, Floats]
    actual: dict[str, Floats]
    predicted: str
    notes: list[str]
    reason: str | None = None


def compared(run: Run) -> Compared:
    return _of_a_live_run(run) if run.is_live else _of_a_simulation(run)


def _of_a_live_run(run: Run) -> Compared:
    tasks = run.tasks
    done = (
        np.isin(np.array(tasks["outcome"].to_pylist(), dtype=object), ("applied", "late"))
        if tasks.num_rows
        else np.zeros(0, bool)
    )
    columns = {name: tasks[name].to_numpy().astype(float)[done] for name in _LIVE}
    return Compared(
        tasks["device"].to_numpy()[done],
        {"time_s": columns["twin_s"], "energy_j": columns["twin_j"], "cost": columns["twin_cost"]},
        {"time_s": columns["elapsed_s"], "energy_j": columns["actual_j"], "cost": columns["clock_cost"]},
        "the mean of what the device took before, against the server's clock and the energy it believes",
        [],
    )


_LIVE = ("twin_s", "twin_j", "twin_cost", "elapsed_s", "actual_j", "clock_cost")


def _of_a_simulation(run: Run) -> Compared:
    told = "the power rule at the link the twin believed in and the mean of the CPUs it had heard of"
    rule = power_rule_of(run, run.config)
    if rule is None:
        why = f"policy.name = {run.config.policy.name!r} is code of the run's owner, which says the power rule."
        return Compared(np.zeros(0, np.int64), _nothing(), _nothing(), told, [], why)
    last = run.moment().round
    first = max(last - MOST + 1, 1)
    rows = run.columns(*ROWS, within=("round", first, last))
    rows = {name: column[rows["round"] >= first] for name, column in rows.items()}
    if not len(rows["round"]):
        return Compared(np.zeros(0, np.int64), _nothing(), _nothing(), told, [])
    mean_cpu_hz, samples = _known_before(run.twin(round=first), rows)
    taken = np.flatnonzero(~rows["declined"].astype(bool))
    predict = predictor(run, run.config, rule)
    known_gain, mean_cpu_hz = _or_nan(rows["known_gain"].astype(float)), _or_nan(mean_cpu_hz)
    found = [
        predict(int(rows["device"][row]), float(known_gain[row]), float(mean_cpu_hz[row]), float(samples[row]))
        for row in taken.tolist()
    ]
    made = np.array([(one.time_s, one.energy_j, one.cost) for one in found], dtype=float).reshape(-1, 3)
    notes = [] if first == 1 else [f"Predictions are held against what happened since round {first}."]
    if declining := int(np.isinf(made[:, 0]).sum()):
        notes.append(f"{declining} updates were predicted to be declined, and are in no error: there is no number to compare.")
    actual = {
        "time_s": (rows["compute_s"] + rows["upload_s"]).astype(float)[taken],
        "energy_j": (rows["compute_j"] + rows["upload_j"]).astype(float)[taken],
        "cost": rows["cost"].astype(float)[taken],
    }
    predictions = dict(zip(("time_s", "energy_j", "cost"), made.T, strict=True))
    return Compared(rows["device"][taken], predictions, actual, told, notes)


def _known_before(twin: Twin, rows: dict[str, Any]) -> tuple[Floats, Floats]:
    """Of every row the mean of the CPU frequencies its device had told of before, and the samples it had announced last.

    ``twin`` is as it was before the first of them.
    """
    declined = rows["declined"].astype(bool)
    heard = ~declined | (rows["decline_reason"] != REASONS[UNAVAILABLE])
    told_hz = np.where(heard, rows["cpu_hz"], 0.0)
    mean, samples = np.full(len(heard), np.nan), np.zeros(len(heard))
    for known, own in zip(twin.devices, of_every_device(rows["device"], len(twin.devices)), strict=True):
        counts = known.cpus + np.cumsum(heard[own]) - heard[own]
        sums = known.cpu_hz_sum + np.cumsum(told_hz[own]) - told_hz[own]
        mean[own] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        last = np.maximum.accumulate(np.where(~declined[own], np.arange(len(own)), -1))
        before = np.concatenate([[-1], last[:-1]]) if len(own) else last
        samples[own] = np.where(before >= 0, rows["samples"][own][before], known.samples.value)
    return mean, samples


def _or_nan(column: Floats) -> Floats:
    """What no radio and no CPU has is left out of the comparison, as what is unknown."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(column) & (column > 0), column, np.nan)


def of_every_device(device: NDArray[np.int64], devices: int) -> list[NDArray[np.int64]]:
    """The places of every device, in order."""
    ends = np.cumsum(np.bincount(device, minlength=devices))
    return np.split(np.argsort(device, kind="stable"), ends[:-1])


def _nothing() -> dict[str, Floats]:
    return {name: np.zeros(0) for name in ("time_s", "energy_j", "cost")}
