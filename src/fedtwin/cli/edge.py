"""``fedtwin edge``: the edge server of a live fleet."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedtwin.cli.live_options import CredentialsOption, InsecureOption, LogFormat, LogLevel, ServerOption, begin_command
from fedtwin.cli.options import ConfigFile, JsonOption, PolicyOption, RoundsOption, SeedOption, SetOption, configuration
from fedtwin.cli.screen import number, print_json, print_table
from fedtwin.config import replace_settings
from fedtwin.errors import FedtwinError, TakenOverError

TAKEN_OVER = 5


def edge(
    config_file: ConfigFile = None,
    policy: PolicyOption = None,
    rounds: RoundsOption = None,
    seed: SeedOption = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the run.")] = None,
    resume_folder: Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="Go on with the run in here.")] = None,
    state: Annotated[Path | None, typer.Option(metavar="DIR", help="--resume DIR if it is there, else --out DIR.")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="With --resume: go back to the last state that verifies, if files are damaged.")
    ] = False,
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
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another edge server serves the run in --state DIR, then take over.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the edge server of a live fleet. Without --server it starts a NATS server of its own, its store in the folder."""
    begin_command(run_name or "main", log_level, log_format)
    if state is not None:
        if out is not None or resume_folder is not None:
            raise FedtwinError("--state DIR stands for --out or --resume: give one of them.")
        there = any(state.glob("ledger*.jsonl"))
        if there and (state / "summary.json").exists():
            typer.echo(f"The run in {state} is finished. For a new one name another folder.", err=True)
            return  # no error, or a service would be started again and again
        resume_folder, out = (state, None) if standby or there else (None, state)
    given = (config_file, policy, rounds, seed, time_scale, initial, assignments)
    folder = out or resume_folder
    if standby and resume_folder is None:
        raise FedtwinError("--standby begins no run, it waits for one that was begun: give --state DIR with it.")
    if folder is None or (out is not None and resume_folder is not None):
        raise FedtwinError("One of --out DIR (a new run), --resume DIR and --state DIR is needed.")
    if state is None and resume_folder is not None and any(option is not None for option in given):
        raise FedtwinError("--resume DIR goes on with the settings in its folder: leave the others out.")
    if repair and resume_folder is None:
        raise FedtwinError("--repair goes with --resume DIR: a new run has nothing to repair.")
    from fedtwin import live

    place = live.Place(server or [], listen, mqtt, credentials, insecure)
    shared: dict[str, Any] = {"place": place, "evaluator": evaluator, "metrics": metrics, "grace_s": grace_s}
    shared["logs"] = ["--log-level", log_level, "--log-format", log_format]
    served: live.Served | None
    try:
        if standby:
            served = live.stand_by(folder, run=run_name, **shared)
        elif resume_folder is not None:
            served = live.resume(folder, run=run_name, repair=repair, **shared)
        else:
            config = configuration(config_file, assignments, policy=policy, rounds=rounds, seed=seed)
            if time_scale is not None:
                config = replace_settings(config, {"live.time_scale": time_scale})
            served = live.serve(config, folder, run=run_name or "main", initial=initial, **shared)
    except TakenOverError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(TAKEN_OVER) from None
    if served is None:
        return
    if as_json:
        print_json(served.summary)
    else:
        print_summary(served.summary, folder)
    if served.error is not None:
        typer.echo(f"error: {served.error}", err=True)
        raise typer.Exit(served.exit_code)


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
