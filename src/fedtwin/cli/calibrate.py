"""``fedtwin calibrate``: a board measures itself."""

from pathlib import Path
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
from fedtwin.cli.options import JsonOption, SetOption, configuration
from fedtwin.cli.screen import number, print_json, print_table
from fedtwin.errors import FedtwinError

SHOWN = {
    "seconds_per_sample": "training, s per sample",
    "samples": "samples of a training",
    "cpu_hz": "CPU frequency, Hz",
    "cycles_per_sample": "cycles per sample",
    "update_bytes": "bytes of an upload",
    "goodput_bps": "goodput to the broker, bit/s",
}


def calibrate(
    name: Annotated[str, typer.Argument(help="Name of this device, as for fedtwin device.")],
    config_file: Annotated[
        Path | None, typer.Option("--config", metavar="CONFIG.toml", help="What is trained, where there is no server yet.")
    ] = None,
    server: ServerOption = None,
    run_name: RunName = "main",
    data: Annotated[
        str | None, typer.Option(metavar="FILE.npz|NAME", help="This device's samples; the run's data set by default.")
    ] = None,
    code: CodeOption = None,
    samples: Annotated[int | None, typer.Option(min=1, help="D_n, samples of one training.")] = None,
    command: Annotated[str | None, typer.Option(metavar="COMMAND", help="Train by this command; with --model.")] = None,
    model: Annotated[Path | None, typer.Option(metavar="FILE", help="A model for --command, safetensors.")] = None,
    cpu_hz: Annotated[float | None, typer.Option(min=1e6, help="CPU frequency, where the system does not tell.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For fedtwin device --calibration; NAME.calibration.json by default.")
    ] = None,
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevel = "warning",
    log_format: LogFormat = "text",
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure this board: what a training of the run's model takes here, and with --server how fast the link is."""
    begin_command(run_name, log_level, log_format)
    if (command is None) != (model is None) or (command is not None and samples is None):
        raise FedtwinError("--command needs --model FILE.safetensors, a model to train, and --samples N.")
    from fedtwin import live
    from fedtwin.live.device.calibration import write_calibration

    trainer: live.Trainer = live.TorchTrainer(name, data, samples, None, code)
    if command is not None and model is not None and samples is not None:
        trainer = live.CommandTrainer(command, samples, trial=model)
    config = configuration(config_file, assignments) if config_file is not None or not server else None
    found = live.calibrate(
        name, trainer, config=config, servers=server, run=run_name, cpu_hz=cpu_hz, credentials=credentials, insecure=insecure
    )
    if found is None:
        return
    if found.seconds_per_sample is None:
        raise FedtwinError("The training could not be tried out: the reason is above.")
    file = out or Path(f"{name}.calibration.json")
    write_calibration(file, found)
    values = found.model_dump(exclude_none=True)
    if as_json:
        print_json(values)
        return
    print_table(
        f"{name}: {found.trained}", ["", ""], [[text, number(values[key])] for key, text in SHOWN.items() if key in values]
    )
    typer.echo(f"Written to {file}: fedtwin device {name} --calibration {file}")
