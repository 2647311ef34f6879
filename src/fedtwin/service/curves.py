"""How cost, energy, queues and staleness went, as means over equal parts of the run's clock."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.records.summary import judged_by
from fedtwin.runs import Run
from fedtwin.service.telling import numbers

COLUMNS = ("clock_s", "round", "cost", "compute_j", "upload_j", "total_queue", "staleness", "declined")
SUMMED = ("rows", "taken", "cost", "energy_j", "total_queue", "opened", "staleness")
Floats = NDArray[np.float64]


def curves(run: Run, points: int, from_s: float | None = None, to_s: float | None = None) -> dict[str, Any]:
    """Parts in which nothing was decided are left out. ``mean_cost`` is of all selections until then."""
    first_s = _first_s(run) if from_s is None else from_s
    last_s = _last_s(run) if to_s is None else to_s
    edges = np.linspace(first_s, max(last_s, first_s), points + 1)
    sums = {name: np.zeros(points) for name in SUMMED}
    last = {"clock_s": np.full(points, np.nan), "round": np.zeros(points)}
    before, round_before = np.zeros(2), 0
    for rows in run.batches(*COLUMNS, within=("clock_s", -np.inf, last_s)):
        clock_s, taken = rows["clock_s"], ~rows["declined"].astype(bool)
        cost = np.where(taken, rows["cost"].astype(float), 0.0)
        opens = np.diff(rows["round"], prepend=round_before) > 0
        round_before = int(rows["round"][-1]) if len(taken) else round_before
        early = clock_s < first_s
        before += cost[early].sum(), taken[early].sum()
        kept = ~early & (clock_s <= last_s)
        part = np.minimum(np.searchsorted(edges, clock_s[kept], side="right") - 1, points - 1)
        energy_j = rows["compute_j"].astype(float) + rows["upload_j"].astype(float)
        stale = rows["staleness"].astype(float)
        found = {
            "rows": np.ones(len(taken)),
            "taken": taken.astype(float),
            "cost": cost,
            "energy_j": np.where(taken, energy_j, 0.0),
            "total_queue": rows["total_queue"].astype(float),
            "opened": (opens & ~np.isnan(stale)).astype(float),
            "staleness": np.where(opens & ~np.isnan(stale), stale, 0.0),
        }
        for name, values in found.items():
            sums[name] += np.bincount(part, values[kept], minlength=points)
        np.fmax.at(last["clock_s"], part, clock_s[kept])
        np.maximum.at(last["round"], part, rows["round"][kept])
    there = sums["rows"] > 0
    taken_so_far = np.cumsum(sums["taken"]) + before[1]
    running = _over(np.cumsum(sums["cost"]) + before[0], taken_so_far)
    return {
        "clock_s": numbers(last["clock_s"][there]),
        "round": last["round"][there].astype(int).tolist(),
        "mean_cost": numbers(running[there]),
        "energy_j": numbers(_over(sums["energy_j"], sums["taken"])[there]),
        "total_queue": numbers(_over(sums["total_queue"], sums["rows"])[there]),
        "staleness": numbers(_over(sums["staleness"], sums["opened"])[there]),
        "evaluations": _evaluations(run, from_s, to_s),
    }


def _first_s(run: Run) -> float:
    return min(
        (float(rows["clock_s"].min()) for rows in run.batches("clock_s", within=("round", 0, 1)) if len(rows["clock_s"])),
        default=0.0,
    )


def _last_s(run: Run) -> float:
    """Of the last decision; a synchronous run ends later than that."""
    end = run.moment().round
    rows = run.batches("clock_s", within=("round", end, end))
    return max((float(one["clock_s"].max()) for one in rows if len(one["clock_s"])), default=0.0)


def _over(sums: Floats, counts: Floats) -> Floats:
    means: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


def _evaluations(run: Run, from_s: float | None, to_s: float | None) -> dict[str, Any]:
    table = run.evaluations
    clock_s = table["clock_s"].to_numpy()
    wanted = (clock_s >= (-np.inf if from_s is None else from_s)) & (clock_s <= (np.inf if to_s is None else to_s))
    metric = [
        accuracy if value is None else value
        for value, accuracy in zip(table["test_metric"].to_pylist(), table["test_accuracy"].to_pylist(), strict=True)
    ]
    return {
        "clock_s": clock_s[wanted].tolist(),
        "round": table["round"].to_numpy()[wanted].tolist(),
        "metric": numbers([value for value, is_in in zip(metric, wanted.tolist(), strict=True) if is_in]),
        "loss": numbers(table["test_loss"].to_numpy()[wanted]),
        "name": judged_by(run.config).get("metric"),
    }
