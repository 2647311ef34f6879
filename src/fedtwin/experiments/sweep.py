"""A sweep: every run of a grid, one row each in ``summaries.parquet``. A sweep that was killed goes on where it stopped.

A run that fails is a row with its reason in the column ``failed``; the journal is kept then, for doing those again.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from fedtwin.config import identity_of
from fedtwin.errors import FedtwinError
from fedtwin.experiments.batch import Backend, Outcome, Progress, begun, keep_code, require_a_gpu_here, run_batch
from fedtwin.experiments.grid import Point
from fedtwin.experiments.journal import locked
from fedtwin.experiments.sweep_spec import load_sweep, words_of
from fedtwin.records.checksums import write_checked
from fedtwin.records.summary import Summary, Tally
from fedtwin.sim import run_summary

SUMMARIES_NAME, SPEC_NAME, JOURNAL_NAME, LOCK_NAME = "summaries.parquet", "sweep.toml", "unfinished.jsonl", ".lock"
KINDS = {float: pa.float64(), float | None: pa.float64(), int: pa.int64(), int | None: pa.int64()}
COLUMNS = {name: KINDS[kind] for name, kind in get_type_hints(Summary).items()}


class Sweep:
    """The sweep in a TOML file, and the folder it goes to. Everything is checked before anything is run or written.

    A finished sweep is replaced with ``overwrite`` only; with ``retry_failed`` its failed runs are done again.
    """

    def __init__(self, spec: Path, out: Path, *, overwrite: bool = False, retry_failed: bool = False) -> None:
        self.out, self.journal = out, out / JOURNAL_NAME
        self._points, self._jobs = zip(*load_sweep(spec), strict=True)
        self._text = spec.read_bytes()
        self._overwrite, self._retry_failed = overwrite, retry_failed
        self._outcomes: list[Outcome] = []
        self._require_a_place()

    def __len__(self) -> int:
        return len(self._jobs)

    def begun(self) -> str | None:
        """One sentence about what an earlier command has left to go on from; None where there is nothing."""
        return begun(self._jobs, self.journal, "sweep", retry_failed=self._again)

    @property
    def failures(self) -> str | None:
        """After ``run``: one sentence about the runs that failed or selected nobody; None where there is none."""
        failed = [(point, outcome) for point, outcome in zip(self._points, self._outcomes, strict=False) if outcome.failed]
        if not failed:
            return None
        point, outcome = failed[0]
        sentence = f"{len(failed)} of {len(self)} runs failed, the first was {words_of(point)}: {outcome.failed}"
        again = "" if all(outcome.ran for _, outcome in failed) else " --retry-failed does those that had an error again."
        return f"{sentence} The reasons are in the column failed.{again}"

    def run(self, *, workers: int | None = None, backend: Backend | None = None, progress: Progress | None = None) -> Path:
        """Does the runs that are left and writes the summaries, whole or not at all."""
        require_a_gpu_here(self._jobs, backend)
        with _writing(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
        with locked(self.out / LOCK_NAME):
            self._require_a_place()
            self._outcomes = run_batch(
                self._jobs,
                workers=workers,
                backend=backend,
                journal=self.journal,
                progress=progress,
                keep_failures=True,
                retry_failed=self._again,
            )
            table = _parquet(summaries_table(self._points, self._outcomes))
            with _writing(self.out, f" Finished runs are kept in {self.journal}: the same command goes on from there."):
                keep_code(self._jobs, self.out)
                write_checked(self.out, {SPEC_NAME: self._text, SUMMARIES_NAME: table})
            if all(outcome.ran for outcome in self._outcomes):
                self.journal.unlink()
        return self.out / SUMMARIES_NAME

    @property
    def _again(self) -> bool:
        return self._retry_failed or self._overwrite

    def _require_a_place(self) -> None:
        """Nothing finished is replaced unless told."""
        if self._overwrite or not (self.out / SUMMARIES_NAME).exists():
            return
        place, kept = f"--out {str(self.out)!r} holds a finished sweep", self.journal.exists()
        if not self._retry_failed:
            retry = " or --retry-failed" if kept else ""
            raise FedtwinError(f"{place} already: name another folder, or say --overwrite{retry}.")
        if not kept:
            raise FedtwinError(f"{place} without {JOURNAL_NAME}: no run of it had an error, or the file is gone.")
        if not (self.out / SPEC_NAME).is_file() or (self.out / SPEC_NAME).read_bytes() != self._text:
            raise FedtwinError(f"{place} of another spec than its {SPEC_NAME}: say --overwrite instead of --retry-failed.")


def summaries_table(points: Sequence[Point], outcomes: Sequence[Outcome]) -> pa.Table:
    """One row per run: the values of the grid by the names of their settings, all of the run's summary, why it failed."""
    columns = {name: pa.array([point.values[name] for point in points]) for name in points[0].values}
    rows = [outcome.summary or _without_numbers(point) for point, outcome in zip(points, outcomes, strict=True)]
    names = next((outcome.summary for outcome in outcomes if outcome.ran), rows[0])
    for name in dict.fromkeys(name for row in [names, *rows] for name in row):
        columns[name] = pa.array([row.get(name) for row in rows], type=COLUMNS.get(name))
    columns["failed"] = pa.array([outcome.failed for outcome in outcomes], type=pa.string())
    return pa.table(columns)


def _without_numbers(point: Point) -> dict[str, Any]:
    """What the summary of a run that failed would say about which run it is."""
    nothing = Tally().summary(virtual_time_s=0.0, rounds=1, trained=[0.0], total_queue=0.0)
    summary = run_summary(point.config, nothing, identity_of(point.config))
    return {name: None if name in COLUMNS else value for name, value in summary.items()}


def _parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


@contextmanager
def _writing(out: Path, then: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FedtwinError(f"--out {str(out)!r} cannot be written: {error.strerror}.{then}") from None
