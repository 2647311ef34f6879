"""``fedtwin status``: a run and its devices, now or all the time."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fedtwin.cli.live_options import CredentialsOption, InsecureOption, RunName, ServerOption, begin_command
from fedtwin.cli.options import JsonOption
from fedtwin.errors import FedtwinError

Look = Callable[[], dict[str, Any]]


def status(
    folder: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="Folder of a run; without, give --server.")] = None,
    server: ServerOption = None,
    run_name: RunName = "main",
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until the run is finished or Ctrl-C.")] = False,
    every_s: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks, with --watch.")] = 2.0,
    sort: Annotated[str, typer.Option(help="state (what is wrong first), name, upload, queue or cost.")] = "state",
    most: Annotated[int, typer.Option(min=1, help="Devices that are shown.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Show a run: how it goes on, and every device with its state, what is known of it and why it declined."""
    from fedtwin.cli.status_screen import SORTS

    if sort not in SORTS:
        raise FedtwinError(f"--sort {sort!r} is not allowed: it must be one of {', '.join(SORTS)}.")
    if (folder is None) == (not server):
        raise FedtwinError("One of RUN, the folder of a run, and --server URL is needed.")
    with _looking(folder, server, run_name, credentials, insecure) as look:
        show = _shown_as_json if as_json else _shown
        if not watch:
            show(look(), sort, most)
            return
        try:
            _watch(look, every_s, sort, most, None if as_json or not sys.stdout.isatty() else "live", show)
        except KeyboardInterrupt:
            return


@contextmanager
def _looking(
    folder: Path | None, server: list[str] | None, run_name: str, credentials: Path | None, insecure: bool
) -> Iterator[Look]:
    if folder is not None:
        from fedtwin.extras import require

        require("fedtwin status RUN", "live", "pyarrow")
        from fedtwin.runs.status import Watched

        yield Watched(folder).look
        return
    begin_command(run_name, "warning", "text")
    from fedtwin.live.seeing import Viewer

    with Viewer(server or [], run=run_name, credentials=credentials, insecure=insecure) as viewer:
        yield viewer.look


def _watch(look: Look, every_s: float, sort: str, most: int, live: str | None, show: Callable[..., None]) -> None:
    """In place on a terminal, one after the other elsewhere."""
    if live is None:
        for status in _looks(look, every_s):
            show(status, sort, most, one_line=True)
        return
    from rich.console import Console
    from rich.live import Live

    from fedtwin.cli.status_screen import screen_of

    console = Console()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as picture:
        for status in _looks(look, every_s):
            picture.update(screen_of(status, sort, most, console), refresh=True)


def _looks(look: Look, every_s: float) -> Iterator[dict[str, Any]]:
    """Until the run is finished. That it is damaged by now is said once: it may be repaired."""
    from fedtwin.live.run.ledger import DamageError

    status: dict[str, Any] | None = look()
    said = ""
    while True:
        if status is not None:
            yield status
            if status["run"]["state"] == "finished":
                return
        time.sleep(every_s)
        try:
            status, said = look(), ""
        except DamageError as error:
            status = None
            if str(error) != said:
                said = str(error)
                typer.echo(f"error: {said}", err=True)


def _shown(status: dict[str, Any], sort: str, most: int, *, one_line: bool = False) -> None:  # noqa: ARG001
    from rich.console import Console
    from rich.measure import Measurement

    from fedtwin.cli.status_screen import screen_of

    console = Console()
    screen = screen_of(status, sort, most, console)
    if not console.is_terminal:
        wide = Console(width=500)
        console.width = max(console.width, Measurement.get(wide, wide.options, screen).maximum)
    console.print(screen)


def _shown_as_json(status: dict[str, Any], sort: str, most: int, *, one_line: bool = False) -> None:
    from fedtwin.cli.status_screen import chosen
    from fedtwin.experiments.plain import plain

    more = max(len(status["devices"]) - most, 0)
    told = plain({**status, "devices": chosen(status["devices"], sort, most), "more_devices": more})
    typer.echo(json.dumps(told, indent=None if one_line else 2, allow_nan=False))
