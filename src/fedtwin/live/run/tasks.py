"""Every task of a live run, its prediction beside what was measured."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedtwin.formulas.cost import cost
from fedtwin.formulas.terms import Terms
from fedtwin.live.run import events

TASKS_NAME = "tasks.parquet"
_TASK_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("round", pa.int64()),
    ("device", pa.int64()),
    ("name", pa.string()),
    ("dispatched_s", pa.float64()),
    ("ended_s", pa.float64()),
    ("outcome", pa.string()),
    ("version", pa.int64()),
    ("staleness", pa.int64()),
    ("twin_s", pa.float64()),
    ("predicted_s", pa.float64()),
    ("actual_s", pa.float64()),
    ("elapsed_s", pa.float64()),
    ("link_s", pa.float64()),
    ("twin_j", pa.float64()),
    ("predicted_j", pa.float64()),
    ("actual_j", pa.float64()),
    ("twin_cost", pa.float64()),
    ("predicted_cost", pa.float64()),
    ("actual_cost", pa.float64()),
    ("clock_cost", pa.float64()),
    ("believed", pa.bool_()),
    ("time_source", pa.string()),
    ("energy_source", pa.string()),
    ("uploaded_bytes", pa.int64()),
]
TASKS = pa.schema(_TASK_COLUMNS)


class TaskRows:
    """``rows`` by token; ``start_s`` is when the run started, which its times count from."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._sums: dict[int, tuple[int, float, float, float]] = {}
        self.start_s = 0.0
        self.rows: dict[str, dict[str, Any]] = {}

    def sent(self, sent: events.Dispatched, name: str) -> None:
        """A task as it is handed out: what the twin had seen of the device on average, and what the device predicts."""
        count, *sums = self._sums.get(sent.device, (0, 0.0, 0.0, 0.0))
        known = [total / count if count else None for total in sums]
        self.rows[sent.token] = {
            "round": sent.round,
            "device": sent.device,
            "name": name,
            "dispatched_s": sent.at_s - self.start_s,
            "outcome": "open",
            "version": sent.version,
            "twin_s": known[0],
            "twin_j": known[1],
            "twin_cost": known[2],
            "predicted_s": sent.compute_s + sent.upload_s,
            "predicted_j": sent.compute_j + sent.upload_j,
            "predicted_cost": sent.cost,
        }

    def applied(self, took: events.Applied) -> None:
        time_s, energy_j = took.compute_s + took.upload_s, took.compute_j + took.upload_j
        count, *sums = self._sums.get(took.device, (0, 0.0, 0.0, 0.0))
        self._sums[took.device] = count + 1, sums[0] + time_s, sums[1] + energy_j, sums[2] + took.cost
        self.rows[took.token].update(
            ended_s=took.at_s - self.start_s,
            outcome="late" if took.late else "applied",
            staleness=took.staleness,
            actual_s=time_s,
            actual_j=energy_j,
            actual_cost=took.cost,
            clock_cost=cost(self._terms, took.elapsed_s, energy_j),
            elapsed_s=took.elapsed_s,
            link_s=took.link_s,
            believed=took.believed,
            time_source=_mixed(took.sources, "compute_s", "upload_s"),
            energy_source=_mixed(took.sources, "compute_j", "upload_j"),
            uploaded_bytes=took.uploaded_bytes,
        )

    def given_up(self, event: events.GivenUp) -> None:
        self.rows[event.token].update(outcome=f"given up: {event.reason}", ended_s=event.at_s - self.start_s)


def _mixed(sources: dict[str, str], *keys: str) -> str:
    kinds = sorted({sources.get(key, "modelled") for key in keys})
    return "+".join(kinds)


def read_tasks(folder: Path) -> pa.Table:
    """Every task of a live run, its prediction beside what was measured."""
    return pq.read_table(folder / TASKS_NAME)
