"""``fedtwin.sweep``: every run of a grid, one row each in ``summaries.parquet``. A killed sweep goes on where it stopped.

A run that fails is a row with its reason in the column ``failed``; the journal is kept then, for doing those again.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from fedtwin.config import folder_of, identity_of, read_toml
from fedtwin.errors import FedtwinError
from fedtwin.experiments.analysis.summaries import COLUMNS, summary_columns
from fedtwin.experiments.batches.backends import Backend, open_backend
from fedtwin.experiments.batches.batch import Job, Outcome, keep_code, require_gpus
from fedtwin.experiments.batches.journal import locked
from fedtwin.experiments.batches.told import run_told
from fedtwin.experiments.specs.grid import Point
from fedtwin.experiments.specs.sweep import sweep_points, words_of
from fedtwin.experiments.telling import Count, Say
from fedtwin.given import path_or_none, truth_or_function, wrong_kind
from fedtwin.records.checksums import write_checked
from fedtwin.records.summary import Tally
from fedtwin.sim import run_summary
from fedtwin.sim.run import load_parts

SUMMARIES_NAME, SPEC_NAME, JOURNAL_NAME, LOCK_NAME = "summaries.parquet", "sweep.toml", "unfinished.jsonl", ".lock"
SpecLike = str | PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True)
class SweepResult:
    """A finished sweep: one row per run, where it was written, and a sentence about the runs that failed, if any did."""

    table: pa.Table
    path: Path | None
    failures: str | None

    def __len__(self) -> int:
        return self.table.num_rows

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame (needs pandas)."""
        return self.table.to_pandas()


def sweep(
    spec: SpecLike,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    retry_failed: bool = False,
    workers: int | None = None,
    ray: str | None = None,
    progress: bool | Count = False,
    say: Say | None = None,
) -> SweepResult:
    """Runs a grid of settings × schemes × seeds, as a TOML file or a dict says it, into one table of summaries.

    With ``out`` the table is written there, and a killed sweep goes on where it stopped; a finished one is replaced with
    ``overwrite`` only, and with ``retry_failed`` its failed runs are done again. ``progress`` is True for a bar, or a function
    that hears how many more runs are done; ``say`` hears sentences for a person.
    """
    chosen = Sweep(spec, path_or_none("out", out), overwrite=overwrite, retry_failed=retry_failed)
    truth_or_function("progress", progress)
    return chosen.run(workers=workers, ray=ray, progress=progress, say=say)


class Sweep:
    """A sweep, and the folder it goes to, if any. Everything is checked before anything is run or written."""

    def __init__(self, spec: SpecLike, out: Path | None, *, overwrite: bool = False, retry_failed: bool = False) -> None:
        self.out, self.journal = out, out / JOURNAL_NAME if out is not None else None
        self.points, self.jobs = sweep_runs(spec)
        self._text = tomli_w.dumps(spec).encode() if isinstance(spec, Mapping) else Path(spec).read_bytes()
        self._overwrite, self._retry_failed = overwrite, retry_failed
        self._require_a_place()

    def run(
        self,
        *,
        workers: int | None = None,
        ray: str | None = None,
        backend: Backend | None = None,
        progress: bool | Count = False,
        say: Say | None = None,
    ) -> SweepResult:
        """Does the runs that are left and writes the summaries, whole or not at all."""
        with nullcontext(backend) if backend is not None else open_backend(workers, ray) as place:
            require_gpus(self.jobs, place)
            if self.out is None:
                outcomes = self._outcomes(place, progress, say)
                return SweepResult(summaries_table(self.points, outcomes), None, _failures(self.points, outcomes))
            return self._run_in(self.out, place, progress, say)

    def _run_in(self, out: Path, backend: Backend, progress: bool | Count, say: Say | None) -> SweepResult:
        with _writing(out):
            out.mkdir(parents=True, exist_ok=True)
        with locked(out / LOCK_NAME):
            self._require_a_place()
            outcomes = self._outcomes(backend, progress, say)
            table = summaries_table(self.points, outcomes)
            self._write(table, out)
            if all(outcome.ran for outcome in outcomes):
                (out / JOURNAL_NAME).unlink()
        return SweepResult(table, out / SUMMARIES_NAME, _failures(self.points, outcomes))

    def _outcomes(self, backend: Backend, progress: bool | Count, say: Say | None) -> list[Outcome]:
        return run_told(
            self.jobs,
            of="sweep",
            backend=backend,
            journal=self.journal,
            progress=progress,
            say=say,
            keep_failures=True,
            retry_failed=self._retry_failed or self._overwrite,
        )

    def _write(self, table: pa.Table, out: Path) -> None:
        with _writing(out, f" Finished runs are kept in {self.journal}: the same command goes on from there."):
            keep_code(self.jobs, out)
            write_checked(out, {SPEC_NAME: self._text, SUMMARIES_NAME: _parquet(table)})

    def _require_a_place(self) -> None:
        """Nothing finished is replaced unless told."""
        if self.out is None or self.journal is None or self._overwrite or not (self.out / SUMMARIES_NAME).exists():
            return
        place, kept = f"out = {str(self.out)!r} holds a finished sweep", self.journal.exists()
        if not self._retry_failed:
            others = self._runs_that_are_others(self.out)
            place += f" already, and {others} of these {len(self.jobs)} runs are not in it" if others else " already"
            why = " (settings or code have changed since)" if others else ""
            retry = " or --retry-failed (retry_failed=True)" if kept else ""
            raise FedtwinError(f"{place}{why}: name another folder, or say --overwrite (overwrite=True){retry}.")
        if not kept:
            raise FedtwinError(f"{place} without {JOURNAL_NAME}: no run of it had an error, or the file is gone.")
        if not (self.out / SPEC_NAME).is_file() or (self.out / SPEC_NAME).read_bytes() != self._text:
            raise FedtwinError(f"{place} of another spec than its {SPEC_NAME}: say --overwrite (overwrite=True) instead.")

    def _runs_that_are_others(self, out: Path) -> int:
        """How many runs of this sweep the finished table lacks: their settings, or the code they name, have changed."""
        try:
            known = set(pq.read_table(out / SUMMARIES_NAME, columns=["config_hash"]).column(0).to_pylist())
        except (OSError, pa.ArrowException, LookupError):
            return 0
        return sum(identity_of(job.config).hash not in known for job in self.jobs)


def sweep_runs(spec: SpecLike) -> tuple[list[Point], list[Job]]:
    """Every run of a sweep, in the order of its table, and none twice."""
    if not isinstance(spec, str | PathLike | Mapping):
        raise wrong_kind("spec", spec, "a dictionary or the path of a TOML file")
    content = spec if isinstance(spec, Mapping) else read_toml(Path(spec), "sweep")
    points = sweep_points(content, folder_of(spec))
    _require_parts_that_can_be_had(points)
    jobs, by_key = [Job(point.config) for point in points], dict[str, Point]()
    for point, job in zip(points, jobs, strict=True):
        if (other := by_key.setdefault(job.key, point)) is not point:
            raise FedtwinError(
                f"The sweep has the same run twice, as {words_of(other)} and as {words_of(point)}: leave one out."
            )
    return points, jobs


def _require_parts_that_can_be_had(points: Sequence[Point]) -> None:
    """Policies and worlds with the settings they declare, each once."""
    tried = set()
    for point in points:
        config = point.config
        if (parts := f"{config.policy!r} {config.world!r} {config.code!r}") not in tried:
            tried.add(parts)
            try:
                load_parts(config)
            except FedtwinError as error:
                raise FedtwinError(f"{words_of(point)}: {error}") from None


def summaries_table(points: Sequence[Point], outcomes: Sequence[Outcome]) -> pa.Table:
    """One row per run: the values of the grid by the names of their settings, all of the run's summary, why it failed."""
    columns = {name: pa.array([point.values[name] for point in points]) for name in points[0].values}
    rows = [outcome.summary or _without_numbers(point) for point, outcome in zip(points, outcomes, strict=True)]
    columns |= summary_columns(rows, next((outcome.summary for outcome in outcomes if outcome.ran), None))
    columns["failed"] = pa.array([outcome.failed for outcome in outcomes], type=pa.string())
    return pa.table(columns)


def _failures(points: Sequence[Point], outcomes: Sequence[Outcome]) -> str | None:
    failed = [(point, outcome) for point, outcome in zip(points, outcomes, strict=True) if outcome.failed]
    if not failed:
        return None
    point, outcome = failed[0]
    sentence = f"{len(failed)} of {len(points)} runs failed, the first was {words_of(point)}: {outcome.failed}"
    again = " --retry-failed (retry_failed=True) does those that had an error again."
    return f"{sentence} The reasons are in the column failed.{'' if all(one.ran for _, one in failed) else again}"


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
        raise FedtwinError(f"out = {str(out)!r} cannot be written: {error.strerror}.{then}") from None
