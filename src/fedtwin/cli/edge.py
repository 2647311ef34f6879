"""``fedtwin edge``: the edge server of a live fleet."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedtwin.cli.live_options import CredentialsOption, InsecureOption, LogFormat, LogLevel, ServerOption, begin_command
from fedtwin.cli.options import (
    ConfigFile,
    JsonOption,
    PolicyOption,
    RoundsOption,
    SeedOption,
    SetOption,
    configuration,
    given_settings,
)
from fedtwin.cli.page import PageOption, PagePort, page_beside
from fedtwin.cli.screen import number, print_json, print_table
from fedtwin.errors import FedtwinError, TakenOverError
from fedtwin.extras import require_edge

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
        bool, typer.Option("--repair", help="With --resume DIR: go back to the last state that verifies, if files are damaged.")
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
    from_folder: Annotated[
        Path | None, typer.Option("--from", metavar="RUN", help="Begin with model, normalisation and settings of this run.")
    ] = None,
    evaluator: Annotated[bool, typer.Option(help="Start an evaluation worker here, if PyTorch is installed.")] = True,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics here.")] = None,
    metrics_devices: Annotated[
        int, typer.Option(metavar="K", min=0, help="Of so many devices there are metrics of their own.")
    ] = 50,
    grace_s: Annotated[float, typer.Option(min=0.0, help="Seconds a stop waits for uploads on their way.")] = 10.0,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    assignments: SetOption = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another edge server serves the run in --state DIR, then take over.")
    ] = False,
    ship_code: Annotated[
        bool, typer.Option("--ship-code", help="Give the source of learning.model to devices that say --accept-code.")
    ] = False,
    page: PageOption = False,
    page_port: PagePort = 8080,
    as_json: JsonOption = False,
) -> None:
    """Run the edge server of a live fleet. Without --server it starts a NATS server of its own, its store in the folder."""
    require_edge("fedtwin edge")
    begin_command(run_name or "main", log_level, log_format)
    if state is not None:
        if out is not None or resume_folder is not None:
            raise FedtwinError("--state DIR stands for --out or --resume: give one of them.")
        there = any(state.glob("ledger*.jsonl"))
        if there and (state / "summary.json").exists():
            typer.echo(f"The run in {state} is finished. For a new one name another folder.", err=True)
            return  # no error, or a service would be started again and again
        resume_folder, out = (state, None) if standby or there else (None, state)
    given = (config_file, policy, rounds, seed, time_scale, initial, assignments, from_folder)
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
    shared["ship_code"], shared["metrics_devices"] = ship_code, metrics_devices
    shared["logs"] = ["--log-level", log_level, "--log-format", log_format]
    served: live.Served | None
    try:
        with page_beside(page, folder, page_port, server or [], credentials, insecure=insecure):
            if standby:
                served = live.stand_by(folder, run=run_name, **shared)
            elif resume_folder is not None:
                served = live.resume(folder, run=run_name, repair=repair, **shared)
            else:
                scaled = [] if time_scale is None else [f"live.time_scale={time_scale!r}"]
                named = [*(assignments or []), *scaled]
                config = configuration(config_file, named, policy=policy, rounds=rounds, seed=seed)
                if from_folder is not None:
                    if initial is not None:
                        raise FedtwinError(f"--from {str(from_folder)!r} and --initial both say which model to begin with.")
                    over = given_settings(config_file, named, policy=policy, rounds=rounds, seed=seed)
                    config, initial = live.begin_from(from_folder, over)
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
        "uploads_late": "of these late, for tasks that were given up at first",
        "tasks_given_up": "tasks given up, whose upload never came",
        "model_version": "version of the model",
    }
    named = {**EXPLAINED, "virtual_time_s": "time on the run's clock, s", "refusals": "messages refused", **live}
    rows = [[text, number(summary[name])] for name, text in named.items() if summary.get(name) is not None]
    print_table(f"{summary.get('scheme', 'not started')}, live", ["", ""], rows)
    if limits := summary.get("limits"):
        held = ", ".join(f"{name} = {number(value)}" for name, value in limits.items() if name != "devices")
        typer.echo(f"Limits of an update, from what {limits['devices']} boards measured: {held}")
    if summary.get("quarantined"):
        typer.echo(f"In quarantine: {', '.join(summary['quarantined'])} (why: refusals.parquet)")
    typer.echo(f"Records: {folder}")
    if "incomplete" in summary and not summary.get("damaged_lines"):
        typer.echo(summary["incomplete"])
