"""The commands, put together."""

from typing import Annotated

import typer

from fedtwin.cli.admin import admin_app
from fedtwin.cli.calibrate import calibrate
from fedtwin.cli.compare import compare
from fedtwin.cli.config import config_app
from fedtwin.cli.data import data_app
from fedtwin.cli.device import device, evaluator
from fedtwin.cli.doctor import doctor
from fedtwin.cli.edge import edge
from fedtwin.cli.figure import figure
from fedtwin.cli.live import live_app
from fedtwin.cli.model import export, predict
from fedtwin.cli.plot import plot
from fedtwin.cli.power import power
from fedtwin.cli.provision import provision
from fedtwin.cli.run import run
from fedtwin.cli.serve import serve
from fedtwin.cli.status import status
from fedtwin.cli.sweep import sweep
from fedtwin.cli.whatif import whatif

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Asynchronous federated learning over a fleet of devices, at the least energy and delay.",
)
app.command()(run)
app.command()(compare)
app.command()(sweep)
app.command()(whatif)
app.command()(figure)
app.command()(plot)
app.command()(predict)
app.command()(export)
app.command()(power)
app.command()(edge)
app.command()(device)
app.command()(calibrate)
app.command()(evaluator)
app.command()(provision)
app.command()(status)
app.command()(serve)
app.command()(doctor)
app.add_typer(admin_app, name="admin")
app.add_typer(config_app, name="config")
app.add_typer(data_app, name="data")
app.add_typer(live_app, name="live")


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context, show: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False
) -> None:
    if show:
        from fedtwin import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
