"""A sweep: every run of a grid, one row each in ``summaries.parquet``. A sweep that was killed goes on where it stopped."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from fedtwin.errors import FedtwinError
from fedtwin.experiments.batch import Backend, Outcome, Progress, require_a_gpu_here, run_batch
from fedtwin.experiments.grid import Point
from fedtwin.experiments.journal import locked, read_journal
from fedtwin.experiments.sweep_spec import load_sweep
from fedtwin.records.summary import Summary

SUMMARIES_NAME, SPEC_NAME, JOURNAL_NAME, LOCK_NAME = "summaries.parquet", "sweep.toml", "unfinished.jsonl", ".lock"
REALS = {name for name, kind in get_type_hints(Summary).items() if kind in (float, float | None)}


class Sweep:
    """The sweep in a TOML file, and the folder it goes to. Everything is checked before anything is run or written."""

    def __init__(self, spec: Path, out: Path, *, overwrite: bool = False) -> None:
        self.out, self.journal = out, out / JOURNAL_NAME
        self._points, self._jobs = zip(*load_sweep(spec), strict=True)
        self._text = spec.read_bytes()
        if (out / SUMMARIES_NAME).exists() and not overwrite:
            raise FedtwinError(f"--out {str(out)!r} holds a finished sweep already: name another folder, or say --overwrite.")

    def __len__(self) -> int:
        return len(self._jobs)

    def begun(self) -> str | None:
        """One sentence about what an earlier command has left to go on from; None where there is nothing."""
        finished = read_journal(self.journal).keys()
        if not finished:
            return None
        kept = sum(job.key in finished for job in self._jobs)
        sentence = f"Going on: {kept} of {len(self)} runs are finished already"
        others = len(finished) - kept
        return f"{sentence}, and {others} finished ones are not of this sweep any more." if others else f"{sentence}."

    def run(self, *, workers: int | None = None, backend: Backend | None = None, progress: Progress | None = None) -> Path:
        """Does the runs that are left and writes the summaries, whole or not at all."""
        require_a_gpu_here(self._jobs, backend)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            with locked(self.out / LOCK_NAME):
                (self.out / SPEC_NAME).write_bytes(self._text)
                outcomes = run_batch(self._jobs, workers=workers, backend=backend, journal=self.journal, progress=progress)
                path = self.out / SUMMARIES_NAME
                _write_whole(summaries_table(self._points, outcomes), path)
                self.journal.unlink()
        except OSError as error:
            raise FedtwinError(f"--out {str(self.out)!r} cannot be written: {error.strerror}.") from None
        return path


def summaries_table(points: Sequence[Point], outcomes: Sequence[Outcome]) -> pa.Table:
    """One row per run: the values of the grid by the names of their settings, then all of the run's summary."""
    columns = {name: pa.array([point.values[name] for point in points]) for name in points[0].values}
    rows = [outcome.summary for outcome in outcomes]
    for name in dict.fromkeys(name for row in rows for name in row):
        columns[name] = pa.array([row.get(name) for row in rows], type=pa.float64() if name in REALS else None)
    return pa.table(columns)


def _write_whole(table: pa.Table, path: Path) -> None:
    unfinished = path.with_name(f".{path.name}")
    with unfinished.open("wb") as file:
        pq.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
