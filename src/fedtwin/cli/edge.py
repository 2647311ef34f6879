"""``fedtwin edge``: the edge server of a live fleet."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedtwin.cli.live_options import CredentialsOption, InsecureOption, LogFormat, LogLevel, ServerOption, begin_command
from fedtwin.cli.options import ConfigFile, JsonOption, PolicyOption, RoundsOption, SeedOption, SetOption, configuration
from fedtwin.cli.screen import number, print_json, print_table
from fedtwin.config import Config, replace_settings
from fedtwin.errors import FedtwinError

NOTHING_MIXED_IN, NO_UPLOAD_COMES_THROUGH = 3, 4


def edge(
    config_file: ConfigFile = None,
    policy: PolicyOption = None,
    rounds: RoundsOption = None,
    seed: SeedOption = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the run.")] = None,
    resume_folder: Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="Go on with the run in here.")] = None,
    state: Annotated[Path | None, typer.Option(metavar="DIR", help="--resume DIR if it is there, else --out DIR.")] = None,
    server: ServerOption = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Without --server: where our own broker listens; else loopback.")
    ] = None,
    mqtt: Annotated[
        int | None, typer.Option("--mqtt-port", min=1, max=65535, help="Our broker takes MQTT clients here.")
    ] = None,
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    run_name: Annotated[str | None, typer.Option("--run", help="Name of the run (main): letters, digits, - and _.")] = None,
    time_scale: Annotated[
        float | None, typer.Option(help="Wall seconds per second of the run's clock (live.time_scale).")
    ] = None,
    initial: Annotated[Path | None, typer.Option(metavar="FILE", help="Initial model, safetensors.")] = None,
    evaluator: Annotated[bool, typer.Option(help="Start an evaluation worker here, if PyTorch is installed.")] = True,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics here.")] = None,
    grace_s: Annotated[float, typer.Option(min=0.0, help="Seconds a stop waits for uploads on their way.")] = 10.0,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the edge server of a live fleet. Without --server it starts a NATS server of its own, its store in the folder."""
    begin_command(run_name or "main", log_level, log_format)
    if state is not None:
        if out is not None or resume_folder is not None:
            raise FedtwinError("--state DIR stands for --out or --resume: give one of them.")
        if (state / "ledger.jsonl").exists() and (state / "summary.json").exists():
            typer.echo(f"The run in {state} is finished. For a new one name another folder.", err=True)
            return  # no error, or a service would be started again and again
        resume_folder, out = (state, None) if (state / "ledger.jsonl").exists() else (None, state)
    given = (config_file, policy, rounds, seed, time_scale, initial, assignments)
    if (out is None) == (resume_folder is None):
        raise FedtwinError("One of --out DIR (a new run), --resume DIR and --state DIR is needed.")
    if state is None and resume_folder is not None and any(option is not None for option in given):
        raise FedtwinError("--resume DIR goes on with the settings in its folder: leave the others out.")
    from fedtwin.live.run.live_run import resume
    from fedtwin.live.server.hosting import begin_run, serve_run
    from fedtwin.live.server.place import Place
    from fedtwin.live.views.metrics import check_metrics

    config = None
    if out is not None:
        config = live_configuration(
            configuration(config_file, assignments, policy=policy, rounds=rounds, seed=seed), time_scale=time_scale
        )
    place = Place(server or [], listen, mqtt, credentials, insecure)
    place.check(new=out is not None)
    if metrics is not None:
        check_metrics(metrics)
    if out is not None and config is not None:
        run = begin_run(out, config, run_name or "main", initial)
    else:
        assert resume_folder is not None
        run = resume(resume_folder)
    if run_name is not None and run.name != run_name:
        run.close()
        raise FedtwinError(f"--run {run_name!r} is not the name of the run in {str(run.folder)!r}: that is {run.name!r}.")
    logs = ["--log-level", log_level, "--log-format", log_format]
    served = serve_run(run, place, evaluator=evaluator, metrics=metrics, grace_s=grace_s, logs=logs)
    if as_json:
        print_json(served.summary)
    else:
        print_summary(served.summary, run.folder)
    if served.trouble is not None:
        typer.echo(f"error: No upload came through when the run ended: {served.trouble}.", err=True)
        raise typer.Exit(NO_UPLOAD_COMES_THROUGH)
    if served.nothing is not None:
        typer.echo(f"error: No upload was mixed in: {served.nothing}.", err=True)
        raise typer.Exit(NOTHING_MIXED_IN)


def live_configuration(config: Config, *, time_scale: float | None) -> Config:
    """The same with the live section written out, so that the folder shows what was in force."""
    settings: dict[str, Any] = config.live.model_dump() if config.live is not None else {}
    if time_scale is not None:
        settings["time_scale"] = time_scale
    return replace_settings(config, {f"live.{key}": value for key, value in (settings or {"time_scale": 1.0}).items()})


def print_summary(summary: dict[str, Any], folder: Path) -> None:
    from fedtwin.cli.run import EXPLAINED

    live = {
        "devices": "devices",
        "uploads_applied": "uploads mixed in",
        "uploads_late": "of these after their task was given up",
        "tasks_given_up": "tasks given up",
        "model_version": "version of the model",
    }
    named = {**EXPLAINED, "virtual_time_s": "time on the run's clock, s", "refusals": "messages refused", **live}
    rows = [[text, number(summary[name])] for name, text in named.items() if summary.get(name) is not None]
    print_table(f"{summary.get('scheme', 'not started')}, live", ["", ""], rows)
    if summary.get("quarantined"):
        typer.echo(f"In quarantine: {', '.join(summary['quarantined'])} (why: refusals.parquet)")
    typer.echo(f"Records: {folder}")
