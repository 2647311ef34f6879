"""``fedtwin admin``: orders to an edge server while its run goes on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtwin.cli.device import servers_of
from fedtwin.cli.live_options import (
    CredentialsOption,
    InsecureOption,
    LogFormat,
    LogLevel,
    RunName,
    ServerOption,
    begin_command,
)
from fedtwin.config import parse_assignment
from fedtwin.errors import FedtwinError

if TYPE_CHECKING:
    from fedtwin.live.wire.protocol import Command

admin_app = typer.Typer(help="Steer a live run: orders go to its edge server, which writes them into its ledger.")
DeviceName = Annotated[str, typer.Argument(metavar="DEVICE", help="Name of the device.")]


@admin_app.callback()
def admin() -> None:
    """Steer a live run: orders go to its edge server, which writes them into its ledger."""


@admin_app.command()
def pause(
    server: ServerOption = None,
    run_name: RunName = "main",
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Hand out no new tasks until resume, also after a restart; what is in flight is mixed in."""
    begin_command(run_name, log_level, log_format)
    _give("pause", server, run_name, credentials, insecure)


@admin_app.command()
def resume(
    server: ServerOption = None,
    run_name: RunName = "main",
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Go on with a run that is paused."""
    begin_command(run_name, log_level, log_format)
    _give("resume", server, run_name, credentials, insecure)


@admin_app.command()
def drain(
    device: DeviceName,
    server: ServerOption = None,
    run_name: RunName = "main",
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Give a device no new task until it is released; the one it has is mixed in."""
    begin_command(run_name, log_level, log_format)
    _give("drain", server, run_name, credentials, insecure, device=device)


@admin_app.command()
def release(
    device: DeviceName,
    server: ServerOption = None,
    run_name: RunName = "main",
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Let a device back that is drained, in quarantine, backed off, cut off, or revoked because it flooded the broker."""
    begin_command(run_name, log_level, log_format)
    _give("release", server, run_name, credentials, insecure, device=device)


@admin_app.command("set")
def set_(
    assignment: Annotated[str, typer.Argument(metavar="KEY=VALUE", help="Such as run.rounds=2000.")],
    server: ServerOption = None,
    run_name: RunName = "main",
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Change a setting while the run goes on: rounds, V, D_min, energy weight, limits, rates, stop rules."""
    begin_command(run_name, log_level, log_format)
    setting, value = parse_assignment(assignment)
    _give("set", server, run_name, credentials, insecure, setting=setting, value=value)


@admin_app.command()
def finish(
    server: ServerOption = None,
    run_name: RunName = "main",
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """End the run in good order: what is in flight is mixed in, then summary, tables and model are written."""
    begin_command(run_name, log_level, log_format)
    _give("finish", server, run_name, credentials, insecure)


def _give(
    command: "Command", server: list[str] | None, run: str, credentials: Path | None, insecure: bool, **about: Any
) -> None:
    from fedtwin import live

    _require_an_operator(credentials)
    words = live.order(command, servers_of(server), **about, run=run, credentials=credentials, insecure=insecure)
    typer.echo(words)


def _require_an_operator(credentials: Path | None) -> None:
    """Of certificates that were made elsewhere the broker knows more."""
    from fedtwin.live.broker.permissions import ROLES
    from fedtwin.live.seeing import whose

    try:
        name = whose(credentials)
    except FedtwinError:
        return
    if credentials is not None and name in ROLES and name != "operator":
        raise FedtwinError(f"--credentials {str(credentials)!r} are those of the {name}: orders need those of the operator.")
