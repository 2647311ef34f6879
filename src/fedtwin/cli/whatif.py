"""``fedtwin whatif``: what a run comes to, as it is and under other settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtwin.cli.options import JsonOption, SetOption, settings_of
from fedtwin.cli.screen import print_json, print_table
from fedtwin.extras import require_sim

if TYPE_CHECKING:
    from fedtwin.whatif import Interval

SHOWN = {
    "mean_cost": ("cost Ω", ".4f", "+.4f"),
    "mean_time_s": ("time s", ".4f", "+.4f"),
    "mean_energy_j": ("energy J", ".4f", "+.4f"),
    "least_mean_samples": ("least samples per round", ".3f", "+.3f"),
    "total_queue": ("total queue at the end", ".0f", "+.0f"),
}


def whatif(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, finished or not, simulated or live.")],
    assignments: SetOption = None,
    at: Annotated[int | None, typer.Option(help="Round to fork at; by default after all that is written down.")] = None,
    rounds: Annotated[int, typer.Option(help="How many rounds to look ahead; selections in synchronous mode.")] = 1000,
    worlds: Annotated[int, typer.Option(help="Worlds to sample from what the twin knows.")] = 100,
    without: Annotated[
        list[str] | None, typer.Option(metavar="DEVICE", help="A device that is lost, by number or name.")
    ] = None,
    add: Annotated[int, typer.Option(help="Devices that join.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the sampled worlds.")] = 0,
    trust: Annotated[bool, typer.Option("--trust", help="A policy of your own may be run.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fork a run as its twin knows it, and play it on: as it is, and with other settings, devices lost or added."""
    require_sim("fedtwin whatif")
    from fedtwin.whatif import whatif as ask

    answer = ask(
        run,
        at=at,
        set=settings_of(assignments),
        without=without or (),
        add=add,
        rounds=rounds,
        worlds=worlds,
        seed=seed,
        trust=trust,
    )
    if as_json:
        print_json(answer.as_dict())
        return
    asked = bool(assignments or without or add)
    columns = ["", "as it is", "90 % interval", *(["what if", "90 % interval", "difference", "90 % interval"] if asked else [])]
    rows = []
    for name, (called, form, signed) in SHOWN.items():
        cells = _cells(getattr(answer.as_is, name), form)
        if asked:
            cells += _cells(getattr(answer.what_if, name), form) + _cells(getattr(answer.difference, name), signed)
        rows.append([called, *cells])
    title = f"{answer.rounds} rounds from round {answer.at_round} on, in {answer.worlds} worlds that may be the true one"
    print_table(title, columns, rows)
    for note in answer.notes:
        typer.echo(note)


def _cells(found: "Interval", form: str) -> list[str]:
    if found.mean is None or found.low is None or found.high is None:
        return ["—", "—"]
    return [f"{found.mean:{form}}", f"{found.low:{form}} … {found.high:{form}}"]
