"""The twin of an edge server as ``open_run`` gives it: the same, by the clock of the records, which begins with the run."""

from pathlib import Path

from fedtwin.live.run import events
from fedtwin.live.run.ledger import read_events
from fedtwin.runs.replay import by_the_records
from fedtwin.twin import Twin


def start_s(folder: Path) -> float:
    return next(event.at_s for event in read_events(folder / "ledger.jsonl") if isinstance(event, events.Started))


def as_read(twin: Twin, began_s: float) -> Twin:
    return twin._replace(devices=tuple(by_the_records(device, began_s) for device in twin.devices))
