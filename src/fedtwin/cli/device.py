"""``fedtwin device`` and ``fedtwin evaluator``: the agents of a live fleet."""

import logging
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from fedtwin import live


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
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Made by fedtwin calibrate; a board without one measures itself.")
    ] = None,
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    accept_code: Annotated[
        bool, typer.Option("--accept-code", help="Take a model of the run's own from an edge server that says --ship-code.")
    ] = False,
    code_digest: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="Run no other code of the run's own than this, which the server's log shows."),
    ] = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Run the agent of one device: it joins the fleet, answers, trains and uploads until it is stopped."""
    begin_command(run_name, log_level, log_format)
    if (command is not None or no_training) and samples is None:
        raise FedtwinError("--command and --no-training need --samples N: how many samples one training takes.")
    if command is not None and no_training:
        raise FedtwinError("--command and --no-training exclude each other.")
    if calibration is not None and (emulate is not None or radio != "measured"):
        raise FedtwinError("--calibration is of a board: an emulated device has the numbers of the run's settings.")
    from fedtwin import live

    trainer: live.Trainer = live.TorchTrainer(name, data, samples, emulate, code)
    if command is not None and samples is not None:
        trainer = live.CommandTrainer(command, samples)
    elif no_training and samples is not None:
        trainer = live.NoTrainer(samples)
    _check_training(trainer, data, command, emulated=emulate is not None)
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
        calibration=calibration,
        credentials=credentials,
        insecure=insecure,
        accept_code=accept_code,
        code_digest=code_digest,
    )


def _check_training(trainer: "live.Trainer", data: str | None, command: str | None, *, emulated: bool) -> None:
    """What is missing for it is said before anybody is spoken to."""
    from fedtwin import live
    from fedtwin.live.logs import say

    if isinstance(trainer, live.CommandTrainer) and shutil.which(trainer.program) is None:
        raise FedtwinError(f"--command {command!r} cannot be run: there is no program {trainer.program!r} here.")
    if isinstance(trainer, live.TorchTrainer):
        if find_spec("torch") is None:
            raise FedtwinError("Training here needs PyTorch: pip install 'fedtwin[learn]', or give --command.")
        if data is not None and Path(data).suffix and not Path(data).exists():
            raise FedtwinError(f"--data {data!r} is not there: put this device's samples there, or name another place.")
        if data is None and not emulated:
            say(logging.INFO, "no --data and no --command: trains on the run's own data set, if that is here")


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
