"""``fedtwin device`` and ``fedtwin evaluator``: the agents of a live fleet."""

from typing import Annotated

import typer

from fedtwin.cli.live_options import (
    CodeOption,
    CredentialsOption,
    InsecureOption,
    LogFormat,
    LogLevel,
    RunName,
    ServerOption,
    begin_command,
)
from fedtwin.errors import FedtwinError


def device(
    name: Annotated[str, typer.Argument(help="Name of this device: letters, digits, - and _.")],
    server: ServerOption = None,
    run_name: RunName = "main",
    data: Annotated[
        str | None, typer.Option(metavar="FILE.npz|NAME", help="This device's samples; the run's data set by default.")
    ] = None,
    code: CodeOption = None,
    samples: Annotated[int | None, typer.Option(min=1, help="D_n, samples of one training; at most fleet.samples_max.")] = None,
    command: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Train by this command instead of PyTorch (docs/live.md).")
    ] = None,
    no_training: Annotated[bool, typer.Option("--no-training", help="Give models back as they came.")] = False,
    radio: Annotated[str, typer.Option(help="measured (the real link) or emulated (the simulator's channel).")] = "measured",
    distance_m: Annotated[float, typer.Option(min=0.1, help="Distance to the server, for an emulated radio.")] = 100.0,
    emulate: Annotated[
        int | None, typer.Option(metavar="K", min=0, help="Be device K of the run's simulated fleet: place, CPU, data.")
    ] = None,
    cpu_hz: Annotated[float | None, typer.Option(min=1e6, help="CPU frequency, where the system does not tell.")] = None,
    max_power_w: Annotated[
        float | None, typer.Option(min=1e-12, help="p_n^max of this device's radio; the run's radio.max_power_w by default.")
    ] = None,
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Run the agent of one device: it joins the fleet, answers, trains and uploads until it is stopped."""
    begin_command(run_name, log_level, log_format)
    if (command is not None or no_training) and samples is None:
        raise FedtwinError("--command and --no-training need --samples N: how many samples one training takes.")
    if command is not None and no_training:
        raise FedtwinError("--command and --no-training exclude each other.")
    from fedtwin import live

    trainer: live.Trainer = live.TorchTrainer(name, data, samples, emulate, code)
    if command is not None and samples is not None:
        trainer = live.CommandTrainer(command, samples)
    elif no_training and samples is not None:
        trainer = live.NoTrainer(samples)
    live.run_device(
        name,
        servers_of(server),
        trainer,
        run=run_name,
        radio=radio,
        distance_m=distance_m,
        fleet_device=emulate,
        cpu_hz=cpu_hz,
        max_power_w=max_power_w,
        credentials=credentials,
        insecure=insecure,
    )


def evaluator(
    server: ServerOption = None,
    run_name: RunName = "main",
    data: Annotated[str | None, typer.Option(metavar="FILE.npz|NAME", help="Test set in place of the run's.")] = None,
    code: CodeOption = None,
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Run an evaluation worker: it needs PyTorch, and tells the edge server how good the model is."""
    begin_command(run_name, log_level, log_format)
    from fedtwin import live

    live.run_evaluator(servers_of(server), run=run_name, data=data, code=code, credentials=credentials, insecure=insecure)


def servers_of(server: list[str] | None) -> list[str]:
    if not server:
        raise FedtwinError("--server URL is needed: the address the edge server shows when it starts.")
    return server
