"""Options that the commands of the live fleet share, and what is checked of them before anything is imported."""

from pathlib import Path
from typing import Annotated

import typer

from fedtwin.errors import FedtwinError

ServerOption = Annotated[
    list[str] | None, typer.Option("--server", metavar="URL", help="NATS server, nats://HOST:PORT; again for a cluster.")
]
CredentialsOption = Annotated[Path | None, typer.Option(metavar="DIR", help="Certificates made by fedtwin provision.")]
CodeOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where a model of the run's own, module:factory, lies; the working folder.")
]
InsecureOption = Annotated[bool, typer.Option("--insecure", help="Allow plain text to other machines.")]
RunName = Annotated[str, typer.Option("--run", help="Name of the run: letters, digits, - and _.")]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
LogFormat = Annotated[str, typer.Option(help="text or json.")]


def set_up_logs(level: str, form: str) -> None:
    from fedtwin.live import logs

    if level not in logs.LEVELS:
        raise FedtwinError(f"--log-level {level!r} is not allowed: it must be one of {', '.join(logs.LEVELS)}.")
    if form not in logs.FORMATS:
        raise FedtwinError(f"--log-format {form!r} is not allowed: it must be one of {', '.join(logs.FORMATS)}.")
    logs.set_up(level, form)


def begin_command(run_name: str, log_level: str, log_format: str) -> None:
    """What every command of the live fleet does first."""
    from fedtwin.live.wire.nats_connection import require_nats
    from fedtwin.live.wire.protocol import check_name

    require_nats()
    set_up_logs(log_level, log_format)
    check_name("--run", run_name)
