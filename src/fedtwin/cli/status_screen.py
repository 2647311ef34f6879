"""A run and its devices on one screen. What a device says is text: it moves no cursor and is no markup."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedtwin.cli.screen import number
from fedtwin.cli.terminal import in_letters_of
from fedtwin.live.logs import printable
from fedtwin.live.views.status import STATES

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Row = Mapping[str, Any]
STYLES = {
    **dict.fromkeys(("cut", "quarantined", "stands still", "silent"), "red"),
    **dict.fromkeys(("drained", "backed off", "offline", "waiting", "stopped", "paused"), "yellow"),
    **dict.fromkeys(("in flight", "running"), "green"),
}
OLDEST = float("inf")
SORTS: dict[str, Any] = {
    "state": lambda row: (_rank(row["state"]), row["name"]),
    "name": lambda row: row["name"],
    "upload": lambda row: (-(OLDEST if row["last_upload_age_s"] is None else row["last_upload_age_s"]), row["name"]),
    "queue": lambda row: (-row["queue"], row["name"]),
    "cost": lambda row: (-(row["mean_cost"] or 0.0), row["name"]),
}


def _rank(state: str) -> int:
    return STATES.index(state) if state in STATES else len(STATES)


def chosen(rows: Sequence[Row], sort: str, most: int) -> list[Row]:
    """The first rows by that order."""
    return sorted(rows, key=SORTS[sort])[:most]


def screen_of(status: Mapping[str, Any], sort: str, most: int, console: "Console") -> "RenderableType":
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def text(words: str, style: str = "") -> Text:
        return Text(in_letters_of(console.encoding, printable(words)), style=style)

    run, rows = status["run"], chosen(status["devices"], sort, most)
    lines = [text(words, style) for words, style in _lines(run)]
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name, justify in COLUMNS.items():
        table.add_column(text(name), justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(text(cell, STYLES.get(cell, "")) for cell in _cells(row)))
    more = len(status["devices"]) - len(rows)
    below = [text(f"and {more} more devices: --most {len(status['devices'])} shows all, --sort another order")] if more else []
    return Group(*lines, *([table] if rows else []), *below)


def _lines(run: Row) -> list[tuple[str, str]]:
    named = f"{run['name'] or 'run'}: {run['policy']}, {run['mode']}, round {run['round']} of {run['rounds']}"
    found = [(f"{named}, version {run['version']}, {run['in_flight']} in flight", "bold")]
    why = f": {'; '.join(run['why'])}" if run["why"] else ""
    word = "" if run["word_age_s"] is None else f" (the edge server's word is {_age(run['word_age_s'])} old)"
    found.append((f"{run['state']}{why}{word}", STYLES.get(run["state"], "")))
    going_on = run["state"] != "finished"
    last = "" if run["last_upload_age_s"] is None else f", the last {_age(run['last_upload_age_s'])} ago"
    rate = f", {run['uploads_per_min']:.1f} a minute{last}" if going_on else ""
    uploads = f"{run['uploads']} uploads{rate}; {number(run['energy_j'])} J"
    if (metric := run["metric"]) is not None:
        uploads += f"; {metric['name']} {metric['value']:.4g}{', ' + _age(metric['age_s']) + ' ago' if going_on else ''}"
    found.append((uploads, ""))
    if run["changed"]:
        found.append((f"set: {', '.join(f'{key} = {value}' for key, value in run['changed'].items())}", ""))
    count = run["devices"]
    states = ", ".join(f"{count[state]} {state}" for state in reversed(STATES) if count[state])
    found.append((f"{count['joined']} devices{': ' if states else ''}{states}", ""))
    return found


COLUMNS = {
    "device": "left",
    "state": "left",
    "for": "right",
    "known": "right",
    "queue": "right",
    "cost": "right",
    "upload": "right",
    "s, foretold/measured": "right",
    "J, foretold/measured": "right",
    "why not": "left",
}


def _cells(row: Row) -> list[str]:
    why = row["left_out"] or row["declined"] or ""
    if why and not row["left_out"]:
        why = f"{_age(row['declined_age_s'])} ago: {why}"
    return [
        row["name"],
        row["state"],
        _age(row["state_age_s"]),
        _age(row["known_age_s"]),
        f"{row['queue']:.4g}",
        _amount(row["mean_cost"]),
        _age(row["last_upload_age_s"]),
        *(_pair(row[f"predicted_{unit}"], row[f"measured_{unit}"]) for unit in ("s", "j")),
        why,
    ]


def _amount(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _pair(predicted: float | None, measured: float | None) -> str:
    return "-" if predicted is None and measured is None else f"{_amount(predicted)} / {_amount(measured)}"


def _age(seconds: float | None) -> str:
    """Short: 12 s, 5 min, 3 h, 9 d."""
    if seconds is None:
        return "-"
    for unit, size, most in (("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", 3600.0, 172_800.0)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400.0:.0f} d"
