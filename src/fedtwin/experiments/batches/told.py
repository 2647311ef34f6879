"""A batch that somebody watches: what it goes on from, how far it is, and what an interruption leaves."""

from collections.abc import Sequence
from pathlib import Path

from fedtwin.experiments.batches.allowance import Allowance
from fedtwin.experiments.batches.backends import Backend
from fedtwin.experiments.batches.batch import begun, run_batch
from fedtwin.experiments.batches.job import Job, Outcome
from fedtwin.experiments.telling import Count, Say, kept_when_interrupted, shown_by


def run_told(
    jobs: Sequence[Job],
    *,
    of: str,
    backend: Backend,
    journal: Path | None = None,
    bar: str = "runs",
    progress: bool | Count = False,
    say: Say | None = None,
    keep_failures: bool = False,
    retry_failed: bool = True,
    allowance: Allowance | None = None,
) -> list[Outcome]:
    """``run_batch`` of a sweep, comparison or figure, whichever ``of`` names. ``say`` hears its sentences."""
    if say is not None and (sentence := begun(jobs, journal, of, retry_failed=retry_failed)):
        say(sentence)
    with kept_when_interrupted(journal, say), shown_by(progress, bar, len(jobs)) as count:
        return run_batch(
            jobs,
            backend=backend,
            journal=journal,
            progress=count,
            keep_failures=keep_failures,
            retry_failed=retry_failed,
            allowance=allowance,
        )
