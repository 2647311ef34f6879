"""What devices were given to do, as bars on the run's clock."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from fedtwin.formulas.timeout import timeout_of
from fedtwin.runs import Run
from fedtwin.service.telling import numbers

BARS = ("device", "round", "sent_s", "compute_until_s", "end_s", "cost", "outcome")
ROWS = ("round", "clock_s", "device", "compute_s", "upload_s", "cost", "declined")


def tasks(run: Run, names: list[str], end_s: float, back_s: float, from_s: float, to_s: float, limit: int) -> dict[str, Any]:
    """Those under way between two seconds, in the order they were sent; of more than ``limit`` the last ones. ``back_s`` is how
    long the longest task takes.
    """
    pieces = [_of_a_live_run(run)] if run.is_live else _of_a_simulation(run, end_s, from_s - back_s, to_s)
    found = [_under_way(bars, from_s, to_s) for bars in pieces]
    bars = {name: np.concatenate([piece[name] for piece in found]) for name in BARS}
    order = np.argsort(bars["sent_s"], kind="stable")
    kept = order[max(len(order) - limit, 0) :]
    columns = {key: numbers(bars[key][kept]) for key in ("sent_s", "compute_until_s", "end_s", "cost")}
    listed = [
        {"device": number, "name": names[number], "round": round_, "outcome": outcome, **dict(zip(columns, of_it, strict=True))}
        for number, round_, outcome, *of_it in zip(
            *(bars[key][kept].tolist() for key in ("device", "round", "outcome")), *columns.values(), strict=True
        )
    ]
    return {"tasks": listed, "left_off": len(order) - len(kept)}


def _under_way(bars: dict[str, Any], from_s: float, to_s: float) -> dict[str, Any]:
    over = np.where(np.isnan(bars["end_s"]), np.inf, bars["end_s"])
    found = (bars["sent_s"] <= to_s) & (over >= from_s)
    return {name: column[found] for name, column in bars.items()}


def longest_s(run: Run) -> float:
    """How long the longest task of a simulation takes: whoever looks at a window looks so far back."""
    start = {name: run.start[name].to_numpy() for name in ("compute_s", "upload_s")}
    pieces = (rows["compute_s"] + rows["upload_s"] for rows in chain([start], run.batches("compute_s", "upload_s")))
    return max((float(np.nanmax(took)) for took in pieces if not np.isnan(took).all()), default=0.0)


def _of_a_simulation(run: Run, end_s: float, from_s: float, to_s: float) -> Iterator[dict[str, Any]]:
    """A task ends when its upload is in; a synchronous one when its round does, at the latest. Declines are no tasks."""
    refused = run.refusals.to_pylist()
    yield _bars(run, {name: run.start[name].to_numpy() for name in ROWS}, end_s, refused)
    for rows in run.batches(*ROWS, within=("clock_s", from_s, to_s)):
        yield _bars(run, rows, end_s, refused)


def _bars(run: Run, rows: dict[str, Any], end_s: float, refusals: list[dict[str, Any]]) -> dict[str, Any]:
    rows = {name: column[~rows["declined"].astype(bool)] for name, column in rows.items()}
    sent_s, took_s = rows["clock_s"], (rows["compute_s"] + rows["upload_s"]).astype(float)
    timeout_s = timeout_of(run.config) if run.config.run.mode == "sync" else np.inf
    ended_s = sent_s + np.minimum(took_s, timeout_s)
    outcome = np.where(took_s > timeout_s, "dropped", np.where(ended_s > end_s, "open", "applied")).astype(object)
    for one in refusals:
        own = np.flatnonzero((rows["device"] == one["device"]) & np.isclose(ended_s, one["clock_s"], rtol=1e-12, atol=0.0))
        outcome[own[-1:]] = "refused"
    return {
        "device": rows["device"],
        "round": rows["round"],
        "sent_s": sent_s,
        "compute_until_s": np.minimum(sent_s + rows["compute_s"].astype(float), ended_s),
        "end_s": np.where(outcome == "open", np.nan, ended_s),
        "cost": rows["cost"].astype(float),
        "outcome": outcome,
    }


def _of_a_live_run(run: Run) -> dict[str, Any]:
    """As its tasks have it; how long a device computed is in the rows."""
    table = run.tasks
    rows = pa.concat_tables(
        [run.start.select(("round", "device", "compute_s")), run.rounds.select(("round", "device", "compute_s"))]
    )
    computed = {(row["round"], row["device"]): row["compute_s"] for row in rows.to_pylist() if row["compute_s"] is not None}
    device, round_ = table["device"].to_numpy(), table["round"].to_numpy()
    sent_s = table["dispatched_s"].to_numpy()
    compute_s = np.array([computed.get(key, np.nan) for key in zip(round_.tolist(), device.tolist(), strict=True)], dtype=float)
    actual = table["actual_cost"].to_numpy().astype(float)
    return {
        "device": device,
        "round": round_,
        "sent_s": sent_s,
        "compute_until_s": sent_s + compute_s,
        "end_s": table["ended_s"].to_numpy().astype(float),
        "cost": np.where(np.isnan(actual), table["predicted_cost"].to_numpy().astype(float), actual),
        "outcome": np.array([_word(str(text)) for text in table["outcome"].to_pylist()], dtype=object),
    }


def _word(outcome: str) -> str:
    """``given up: no upload`` in one word."""
    if outcome.startswith("given up: refused"):
        return "refused"
    return "given-up" if outcome.startswith("given up") else outcome
