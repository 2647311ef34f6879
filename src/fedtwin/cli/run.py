"""``fedtwin run``: simulate one configuration."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from fedtwin.cli.options import (
    ConfigFile,
    JsonOption,
    PolicyOption,
    RoundsOption,
    SeedOption,
    SetOption,
    configuration,
)
from fedtwin.cli.screen import number, print_json, print_table, progress_bar, say
from fedtwin.config import Config
from fedtwin.errors import FedtwinError
from fedtwin.experiments.telling import saying_when_interrupted
from fedtwin.extras import require_sim

NOBODY_SELECTED = 3
EXPLAINED = {
    "mean_cost": "mean cost Ω of a selection",
    "mean_time_s": "mean time of an update, s",
    "mean_energy_j": "mean energy of an update, J",
    "virtual_time_s": "virtual time, s",
    "rounds": "selections",
    "declines": "declines",
    "least_mean_samples": "samples per round of the device that trained least (C1)",
    "total_queue": "total virtual queue at the end",
    "passed_rounds": "rounds in which every idle device declined",
    "mean_staleness": "mean staleness of an upload",
    "max_staleness": "largest staleness of an upload (Δ)",
    "time_violations": "updates over max_time_s (C6)",
    "energy_violations": "updates over max_energy_j (C5)",
    "test_loss": "loss on the test set",
    "test_accuracy": "accuracy on the test set",
    "test_metric": "metric of the task (learning.metric) on the test set",
    "refusals": "uploads refused",
    "drops": "uploads dropped, too late for their round",
    "wasted_energy_j": "energy of these, J",
}


def run(
    config_file: ConfigFile = None,
    policy: PolicyOption = None,
    rounds: RoundsOption = None,
    seed: SeedOption = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the records.")] = None,
    resume_folder: Annotated[
        Path | None, typer.Option("--resume", metavar="DIR", help="Go on with an unfinished run in this folder.")
    ] = None,
    checkpoint_every_s: Annotated[float, typer.Option(min=0.0, help="Wall seconds between checkpoints of a training.")] = 30.0,
    trace: Annotated[bool, typer.Option("--trace", help="Record queue and index of every device at every decision.")] = False,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate one run; with --out keep its records, with --trace all that every decision rests on."""
    require_sim("fedtwin run")
    from fedtwin.records.checksums import warn_if_changed
    from fedtwin.records.reading import read_unfinished
    from fedtwin.sim import resume, run_summary, simulate

    if resume_folder is not None:
        if trace or any(option is not None for option in (config_file, policy, rounds, seed, out, assignments)):
            raise FedtwinError("--resume DIR stands alone: the run goes on with the settings in its folder.")
        config, out = read_unfinished(resume_folder)[0], resume_folder
        with _resumable(out), progress_bar("rounds", config.run.rounds) as progress:
            result = resume(resume_folder, progress=progress, checkpoint_every_s=checkpoint_every_s)
    else:
        config = configuration(config_file, assignments, policy=policy, rounds=rounds, seed=seed)
        if trace and out is None:
            raise FedtwinError("--trace needs --out DIR: the trace is a part of the records.")
        if config_file is not None:
            warn_if_changed(config_file.parent)
        with _resumable(out), progress_bar("rounds", config.run.rounds) as progress:
            result = simulate(
                config, out=out, trace=trace, records=False, progress=progress, checkpoint_every_s=checkpoint_every_s
            )
    _show(run_summary(result.config, result.summary, result.identity), config, out, as_json=as_json)
    if result.summary.rounds == (result.summary.drops or 0):
        raise typer.Exit(NOBODY_SELECTED)


def _resumable(out: Path | None) -> AbstractContextManager[None]:
    """Says, when a run with a folder is interrupted, how it goes on."""
    return saying_when_interrupted(f"The run goes on with: fedtwin run --resume {out}" if out is not None else None, say)


def _show(summary: dict[str, Any], config: Config, out: Path | None, *, as_json: bool) -> None:
    if as_json:
        print_json(summary)
        return
    rows = [[_explained(name, config), number(summary[name])] for name in EXPLAINED if summary.get(name) is not None]
    print_table(f"{summary['scheme']}, seed {summary['seed']}", ["", ""], rows)
    if out is not None:
        typer.echo(f"{'Records' if config.run.records else 'Summary'}: {out}")


def _explained(name: str, config: Config) -> str:
    """What a row of the summary is, and of which model: ``learning.average = "auto"`` leaves that to the length of the run."""
    return f"{EXPLAINED[name]}, averaged model" if name.startswith("test_") and config.averages else EXPLAINED[name]
