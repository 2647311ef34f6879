"""``fedtwin provision``: certificates for a fleet, and their revocation."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from fedtwin.cli.screen import print_table
from fedtwin.errors import FedtwinError


def provision(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the fleet's certificates.")],
    run: Annotated[str | None, typer.Option(help="Run of the fleet; main, or the folder's own. Another is one more.")] = None,
    server_names: Annotated[
        list[str] | None, typer.Option("--server-name", metavar="HOST", help="Name or address that devices know the server by.")
    ] = None,
    devices: Annotated[
        list[str] | None, typer.Option("--device", metavar="NAME", help="Device to make a certificate for.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="How long new certificates last; 365.")] = None,
    revoke: Annotated[str | None, typer.Option(metavar="NAME", help="Device whose rights end now.")] = None,
    pid_file: Annotated[Path | None, typer.Option(help="nats.pid of the broker to tell, if it is not found by itself.")] = None,
) -> None:
    """Make or extend a fleet's certificates, revoke a device, or list what there is."""
    from fedtwin.live.broker import provisioning as fleet_folder

    making = {"--run": run, "--server-name": server_names, "--device": devices, "--days": days}
    given = [name for name, value in making.items() if value]
    if revoke is not None:
        if given:
            raise FedtwinError(f"--revoke {revoke!r} and {given[0]} do not go together: use two commands.")
        told = fleet_folder.revoke(folder, revoke, pid_file=pid_file)
        now = "its broker was told to cut it off" if told else "no running broker is known, the next one will refuse it"
        typer.echo(f"{revoke} is revoked: {now}.")
        return
    if pid_file is not None:
        raise FedtwinError(f"--pid-file {str(pid_file)!r} goes with --revoke only.")
    if not given:
        _list(fleet_folder.fleet_of(folder))
        return
    known = (folder / "fleet.json").exists()
    fleet = fleet_folder.provision(
        folder,
        run=run or (fleet_folder.fleet_of(folder)["run"] if known else "main"),
        server_names=server_names or [],
        devices=devices or [],
        days=365 if days is None else days,
    )
    count = sum(not entry["revoked"] for entry in fleet["devices"].values())
    runs = fleet_folder.runs_of(fleet)
    named = f"run {runs[0]}" if len(runs) == 1 else f"runs {', '.join(runs)}"
    typer.echo(f"{folder}: {named}, {count} devices. Give each device its folder under {folder / 'devices'}.")


def _list(fleet: dict[str, Any]) -> None:
    rows = [
        [name, f"{datetime.fromisoformat(entry['expires']):%Y-%m-%d %H:%M}", "yes" if entry["revoked"] else "no"]
        for name, entry in sorted(fleet["devices"].items())
    ]
    print_table(f"Devices of run {fleet['run']}", ["device", "expires", "revoked"], rows)
