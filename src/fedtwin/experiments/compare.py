"""``fedtwin.compare``: schemes on the same worlds, by running them; or run folders as they are."""

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from fedtwin.config import Config, ConfigLike, config_of, folder_of, replace_settings
from fedtwin.errors import FedtwinError
from fedtwin.experiments.analysis.comparison import Comparison, comparison_of
from fedtwin.experiments.analysis.metrics import chosen_metrics, to_accuracy
from fedtwin.experiments.batches.backends import open_backend
from fedtwin.experiments.batches.batch import Job, Outcome, keep_code, with_selections
from fedtwin.experiments.batches.told import run_told
from fedtwin.experiments.folders import compare_folders
from fedtwin.experiments.plain import plain
from fedtwin.experiments.specs.schemes import Scheme, chosen_schemes, each_with_its_settings, label, scheme_config
from fedtwin.experiments.telling import Count, Say
from fedtwin.given import path_or_none, settings_given, truth_or_function
from fedtwin.learning.charges import UploadSizes
from fedtwin.records.checksums import write_checked
from fedtwin.records.files import json_bytes
from fedtwin.registry import SCHEMES
from fedtwin.runs import Run
from fedtwin.usercode import only_here, sentence_of_only_here

__all__ = ["Comparison", "compare", "compare_folders", "comparison_jobs"]

JOURNAL_NAME, COMPARISON_NAME, RUNS_NAMES = "unfinished.jsonl", "comparison.json", ("runs.parquet", "runs.csv")

SETTINGS = "settings (--set, --rounds, --seed)"
SEEDS = 5
TIMEOUT, A_SYNCHRONOUS_SCHEME = "run.sync_timeout_s", "Sy-fairness"


def compare(
    config: ConfigLike | Run | Sequence[str | Path | Run] = None,
    schemes: str | Sequence[Scheme] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    metrics: str | Sequence[str] | None = None,
    accuracy: float | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    ray: str | None = None,
    progress: bool | Count = False,
    say: Say | None = None,
) -> Comparison:
    """Runs every scheme on the same worlds, and pairs them by ``metrics`` (the cost). Run folders are compared as they are.

    ``config`` is a Config, a TOML file, a dict, or None for the defaults, with ``{"section.key": value}`` of ``settings`` laid
    over it. ``schemes`` are names, ``module:attribute`` of one's own or policies, by default all of the paper. ``seeds`` is how
    many, from ``run.seed`` on, or which; 5 by default. With ``accuracy`` the time and energy until it is reached are metrics
    too. Settings that policies declare (``policy.settings.key``) go to the schemes that declare them. With ``out`` the
    comparison and a row per run are written there, and an interrupted comparison goes on there.
    ``progress`` is True for a bar, or a function that hears how many more runs are done; ``say`` hears sentences for a person.
    """
    folder, settings = path_or_none("out", out), settings_given("settings", settings)
    truth_or_function("progress", progress)
    _require_no_comparison_in(folder)
    if isinstance(config, Run) or (isinstance(config, str | Path) and Path(config).is_dir()):
        config = [config]
    if isinstance(config, list | tuple):
        for_running = {"schemes": schemes, "seeds": seeds, SETTINGS: settings or None, "workers": workers, "ray": ray}
        _require_nothing_for_running([name for name, value in for_running.items() if value is not None])
        comparison, jobs = compare_folders(config, metrics=metrics, accuracy=accuracy), []
    else:
        source: ConfigLike = config  # type: ignore[assignment]
        timeout_s = config_of(
            source, {**settings, "policy.name": A_SYNCHRONOUS_SCHEME}, code_in=[Path.cwd()]
        ).run.sync_timeout_s
        base = config_of(source, {**settings, TIMEOUT: None}, code_in=[Path.cwd()])
        asked = chosen_metrics(metrics, accuracy, trains=base.learning is not None)
        own = [base.policy.name] if ":" in base.policy.name else []
        seeds = SEEDS if seeds is None else seeds
        jobs = comparison_jobs(base, chosen_schemes(schemes, [*own, *SCHEMES]), seeds, folder_of(source), timeout_s)
        journal = folder / JOURNAL_NAME if folder is not None else None
        if folder is not None:
            _require_code_that_can_be_kept(jobs)
        with open_backend(workers, ray) as backend:
            outcomes = run_told(jobs, of="comparison", backend=backend, journal=journal, progress=progress, say=say)
        comparison = comparison_of(_summaries(jobs, outcomes, accuracy), asked, accuracy)
    if folder is not None:
        _write(comparison, folder, jobs)
    return comparison


def comparison_jobs(
    base: Config,
    schemes: Sequence[Scheme],
    seeds: int | Sequence[int],
    folder: Path | None = None,
    timeout_s: float | None = None,
) -> list[Job]:
    """The runs of a comparison. Code of the user's is looked for in ``folder`` first.

    A timeout goes to the schemes that have synchronous rounds; where none has, one refuses it.
    """
    which = range(base.run.seed, base.run.seed + seeds) if isinstance(seeds, int) else seeds
    if not isinstance(which, range | list | tuple) or not which or not all(type(seed) is int for seed in which):
        raise FedtwinError(f"seeds = {seeds!r} is not allowed: it must be how many seeds, at least 1, or a list of seeds.")
    configs = each_with_its_settings([scheme_config(base, scheme, folder) for scheme in schemes])
    if timeout_s is not None:
        nobody_is = all(config.run.mode == "async" for config in configs)
        configs = [
            replace_settings(config, {TIMEOUT: timeout_s}) if nobody_is or config.run.mode == "sync" else config
            for config in configs
        ]
    sizes = UploadSizes()
    configs = [sizes.charged(config) for config in configs]
    return [Job(replace_settings(config, {"run.seed": seed})) for config in configs for seed in which]


def _summaries(
    jobs: Sequence[Job], outcomes: Sequence[Outcome], accuracy: float | None
) -> Iterable[tuple[str, int, dict[str, Any]]]:
    for job, outcome in zip(jobs, with_selections(jobs, outcomes), strict=True):
        summary = {**outcome.summary, **to_accuracy(outcome.evaluations, accuracy)}
        yield label(job.config, summary["scheme"]), job.config.run.seed, summary


def _require_code_that_can_be_kept(jobs: Sequence[Job]) -> None:
    for job in jobs:
        for setting, name in job.config.own_code.items():
            if only_here(name):
                why = "the folder of a comparison keeps the source of its code, to go on with it"
                raise FedtwinError(sentence_of_only_here(setting, name, why))


def _require_nothing_for_running(given: Sequence[str]) -> None:
    if given:
        verb, them = ("is", "it") if len(given) == 1 else ("are", "them")
        names = " and ".join([", ".join(given[:-1]), given[-1]] if len(given) > 1 else given)
        raise FedtwinError(f"{names} {verb} for running, and run folders are compared as they are: leave {them} out.")


def _require_no_comparison_in(out: Path | None) -> None:
    if out is not None and (out / COMPARISON_NAME).exists():
        raise FedtwinError(f"out = {str(out)!r} holds a comparison already: name another folder, nothing is overwritten.")


def _write(comparison: Comparison, out: Path, jobs: Sequence[Job]) -> None:
    """The report and a row per run, whole or not at all; then the journal is done with."""
    _require_no_comparison_in(out)
    report = json_bytes(plain(comparison.as_dict()))
    try:
        out.mkdir(parents=True, exist_ok=True)
        keep_code(jobs, out)
        tables = dict(zip(RUNS_NAMES, _as_bytes(comparison.table), strict=True))
        write_checked(out, {**tables, COMPARISON_NAME: report})
    except OSError as error:
        raise FedtwinError(f"out = {str(out)!r} cannot be written: {error.strerror}.") from None
    (out / JOURNAL_NAME).unlink(missing_ok=True)


def _as_bytes(table: pa.Table) -> tuple[bytes, bytes]:
    parquet, csv = io.BytesIO(), io.BytesIO()
    pq.write_table(table, parquet)
    pc.write_csv(table, csv)
    return parquet.getvalue(), csv.getvalue()
