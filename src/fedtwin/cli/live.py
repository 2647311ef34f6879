"""``fedtwin live demo``: a whole fleet on this machine."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtwin.cli.options import JsonOption, PolicyOption, SeedOption, SetOption
from fedtwin.cli.page import PageOption, PagePort, page_beside
from fedtwin.cli.screen import number, print_json, print_table, progress_bar
from fedtwin.config import parse_assignment
from fedtwin.extras import require, require_edge

if TYPE_CHECKING:
    import pyarrow as pa

    from fedtwin.live.run.events import Event

live_app = typer.Typer(help="A live fleet of real processes.", rich_markup_mode=None, no_args_is_help=True)


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
    page: PageOption = False,
    page_port: PagePort = 8080,
    as_json: JsonOption = False,
) -> None:
    """Train digits on a fleet of this machine's processes: a broker, an edge server and eight unlike devices."""
    require_edge("fedtwin live demo")
    require("fedtwin live demo", "learn", "torch")
    from fedtwin.cli.edge import print_summary
    from fedtwin.live.demo import check_demo, demo_config, run_demo
    from fedtwin.live.run.tables import read_tasks

    named = {"policy.name": policy, "run.seed": seed, "live.time_scale": time_scale}
    overrides: dict[str, Any] = {"run.rounds": rounds, **dict(parse_assignment(text) for text in assignments or [])}
    config = demo_config(devices, {**overrides, **{key: value for key, value in named.items() if value is not None}})
    check_demo(out)
    joined = count(1)
    typer.echo(f"Starting a broker, an edge server and {devices} devices …", err=True)
    with page_beside(page, out, page_port) as beside:
        with progress_bar("rounds", rounds) as progress:
            shown = run_demo(out, config, lambda event: _show(event, joined, devices, progress), _warn)
        if as_json:
            print_json(shown.summary)
        else:
            _print_predictions(read_tasks(out))
            print_summary(shown.summary, out)
        if beside is not None:
            typer.echo("The page stays until Ctrl-C.", err=True)
            with suppress(KeyboardInterrupt):
                beside.wait()
    if shown.trouble is not None:
        typer.echo(f"error: {shown.trouble}", err=True)
        raise typer.Exit(shown.exit_code)


def _warn(line: str) -> None:
    typer.echo(line, err=True)


def _show(event: "Event", joined: Iterator[int], devices: int, progress: Callable[[int], None]) -> None:
    from fedtwin.live.run import events

    match event:
        case events.Joined():
            typer.echo(f"{event.name} joined ({next(joined)} of {devices}), {event.samples} samples per training", err=True)
        case events.Asked():
            progress(event.round)
        case events.Measured():
            accuracy = event.test_accuracy or 0.0
            bar = "█" * round(40 * accuracy)
            typer.echo(
                f"round {event.round:4d}   {event.energy_j:7.1f} J   accuracy {100 * accuracy:5.1f} %  {bar}",
                err=True,
            )
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
