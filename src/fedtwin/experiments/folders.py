"""Run folders as runs of a comparison, without running anything."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtwin.config import Config, settings
from fedtwin.errors import FedtwinError
from fedtwin.experiments.analysis.comparison import Comparison, comparison_of
from fedtwin.experiments.analysis.metrics import chosen_metrics, to_accuracy
from fedtwin.experiments.specs.schemes import label
from fedtwin.learning.evaluation import Evaluation
from fedtwin.records.summary import CODE_COLUMNS
from fedtwin.runs import Run, open_run

A_SCHEME_IS_MADE_OF = ("policy.", "run.mode", "run.sync_timeout_s", "twin.gain")
CHANGE_NO_NUMBER = ("run.seed", "run.engine", "run.records", "learning.executor", "learning.device", "learning.workers")


def compare_folders(
    folders: Sequence[str | Path | Run], *, metrics: str | Sequence[str] | None = None, accuracy: float | None = None
) -> Comparison:
    """Compares finished runs as they are. They must differ in policy, mode and seed only."""
    if not folders:
        raise FedtwinError("There is no run to compare: name one folder or more.")
    runs = [_finished(folder if isinstance(folder, Run) else open_run(folder)) for folder in folders]
    for run in runs[1:]:
        _require_the_same_world(run, runs[0])
    asked = chosen_metrics(metrics, accuracy, trains=runs[0].config.learning is not None)
    summaries = [{**run.summary, **_to_accuracy(run, accuracy)} for run in runs]
    named = zip(_names(runs), runs, summaries, strict=True)
    return comparison_of(((name, run.config.run.seed, summary) for name, run, summary in named), asked, accuracy)


def _finished(run: Run) -> Run:
    if not run.finished:
        raise FedtwinError(f"{str(run.path)!r} is not the folder of a finished run.")
    if run.summary["mean_cost"] is None:
        raise FedtwinError(f"{str(run.path)!r} made no selection: every device declined every round.")
    return run


def _to_accuracy(run: Run, accuracy: float | None) -> dict[str, Any]:
    return to_accuracy([Evaluation(**row) for row in run.evaluations.to_pylist()], accuracy) if accuracy is not None else {}


def _require_the_same_world(run: Run, first: Run) -> None:
    world, other = _world_of(first.config), _world_of(run.config)
    sentence = f"{str(run.path)!r} cannot be compared with {str(first.path)!r}"
    for name in sorted(other.keys() | world.keys()):
        if world.get(name) != other.get(name):
            raise FedtwinError(f"{sentence}: {name} is {other.get(name)!r} in one and {world.get(name)!r} in the other.")
    for setting, column in CODE_COLUMNS.items():
        if setting != "policy.name" and run.summary.get(column) != first.summary.get(column):
            raise FedtwinError(f"{sentence}: the code of {setting} differs.")


def _world_of(config: Config) -> Mapping[str, Any]:
    return {
        name: value
        for name, value in settings(config).items()
        if not name.startswith(A_SCHEME_IS_MADE_OF) and name not in CHANGE_NO_NUMBER
    }


def _names(runs: Sequence[Run]) -> list[str]:
    """Schemes by their labels; policies of the same name but other code have the beginning of its digest added."""
    named = [(label(run.config, run.summary["scheme"]), str(run.summary.get("policy_code", ""))) for run in runs]
    several = {name for name, code in named if any(other == name and one != code for other, one in named)}
    return [f"{name} [{code[:8]}]" if name in several else name for name, code in named]
