"""``fedtwin live demo``: a whole fleet on this machine."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtwin.cli.options import JsonOption, PolicyOption, SeedOption, SetOption
from fedtwin.cli.screen import number, print_json, print_table, progress_bar
from fedtwin.config import Config, build_config, parse_assignment
from fedtwin.errors import FedtwinError

if TYPE_CHECKING:
    import pyarrow as pa

    from fedtwin.live.run.events import Event

live_app = typer.Typer(help="A live fleet of real processes.", rich_markup_mode=None, no_args_is_help=True)
SETTINGS: dict[str, Any] = {
    "fleet": {"channels": 4},
    "learning": {"dataset": "digits", "model": "mlp", "learning_rate": 0.1, "evaluate_every_s": 5.0},
    "live": {"time_scale": 0.2, "heartbeat_s": 2.0, "clock_tolerance_s": 0.1},
}


@live_app.callback()
def live() -> None:
    """A live fleet of real processes."""


@live_app.command()
def demo(
    out: Annotated[Path, typer.Option(help="New folder for the run.")] = Path("out/live-demo"),
    devices: Annotated[int, typer.Option(min=1, max=64, help="Device processes.")] = 8,
    rounds: Annotated[int, typer.Option(min=1, help="Selections to make.")] = 300,
    policy: PolicyOption = None,
    seed: SeedOption = None,
    time_scale: Annotated[float | None, typer.Option(help="Wall seconds per second of the run's clock.")] = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train digits on a fleet of this machine's processes: a broker, an edge server and eight unlike devices."""
    from fedtwin.cli.edge import print_summary
    from fedtwin.live import demo as fleet
    from fedtwin.live.event_loop import require_nats
    from fedtwin.live.run.tables import read_tasks
    from fedtwin.records import read_summary

    require_nats()
    config = _configuration(devices, rounds, policy, seed, time_scale, assignments)
    if out.exists():
        raise FedtwinError(f"--out {str(out)!r} exists already: name a folder that does not, nothing is overwritten.")
    with tempfile.TemporaryDirectory(prefix="fedtwin-demo-") as folder:
        work, joined = Path(folder), count(1)
        typer.echo(f"Starting a broker, an edge server and {devices} devices …", err=True)
        try:
            with fleet.fleet_of_processes(out, config, work) as processes, progress_bar("rounds", rounds) as progress:

                def happened(event: "Event") -> None:
                    _show(event, joined, devices, progress)

                fleet.follow(out, processes, work, happened)
        finally:
            if out.exists():
                logs = out / "logs"
                logs.mkdir(exist_ok=True)
                for log in work.glob("*.log"):
                    shutil.copy(log, logs / log.name)
    summary = read_summary(out)
    if as_json:
        print_json(summary)
    else:
        _print_predictions(read_tasks(out))
        print_summary(summary, out)
    if processes.edge.returncode != 0:
        typer.echo(f"error: {fleet.last_words(out / 'logs' / 'edge.log')}", err=True)
        raise typer.Exit(processes.edge.returncode)


def _configuration(
    devices: int, rounds: int, policy: str | None, seed: int | None, time_scale: float | None, assignments: list[str] | None
) -> Config:
    named = {"policy.name": policy, "run.seed": seed, "live.time_scale": time_scale}
    base = {**SETTINGS, "fleet": {**SETTINGS["fleet"], "channels": min(4, devices), "devices": devices}}
    overrides: dict[str, Any] = {"run.rounds": rounds, **dict(parse_assignment(text) for text in assignments or [])}
    return build_config(base, {**overrides, **{key: value for key, value in named.items() if value is not None}})


def _show(event: "Event", joined: Iterator[int], devices: int, progress: Callable[[int], None]) -> None:
    from fedtwin.live.run import events

    match event:
        case events.Joined():
            typer.echo(f"{event.name} joined ({next(joined)} of {devices}), {event.samples} samples per training", err=True)
        case events.Asked():
            progress(event.round)
        case events.Measured():
            bar = "█" * round(40 * event.test_accuracy)
            typer.echo(
                f"round {event.round:4d}   {event.energy_j:7.1f} J   accuracy {100 * event.test_accuracy:5.1f} %  {bar}",
                err=True,
            )
        case events.GivenUp() | events.Quarantined():
            typer.echo(f"{event.kind}: {event.reason}", err=True)
        case _:
            pass


def _print_predictions(tasks: "pa.Table") -> None:
    """Per device: what the twin had learned, what the device predicted, and what came of it, as means over its updates."""
    done = [row for row in tasks.to_pylist() if row["outcome"] in ("applied", "late") and row["twin_s"] is not None]
    rows = []
    for name in sorted({row["name"] for row in done}, key=lambda text: (len(text), text)):
        own = [row for row in done if row["name"] == name]
        mean = {key: sum(row[key] for row in own) / len(own) for key in _SHOWN}
        rows.append([name, str(len(own)), *(number(mean[key], 3) for key in _SHOWN)])
    if rows:
        columns = ["device", "updates", *(label for label in _SHOWN.values())]
        kinds = "+".join(sorted({row["energy_source"] for row in done}))
        title = f"Predicted by twin and device, measured by the server's clock; energy is {kinds} (means per update)"
        print_table(title, columns, rows)


_SHOWN = {
    "twin_s": "twin s",
    "predicted_s": "device s",
    "elapsed_s": "measured s",
    "twin_j": "twin J",
    "predicted_j": "device J",
    "actual_j": "reported J",
    "twin_cost": "twin Ω",
    "predicted_cost": "device Ω",
    "clock_cost": "measured Ω",
}
