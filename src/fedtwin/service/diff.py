"""What is different between two moments of a run, property by property."""

from typing import Any

from fedtwin.service.properties import PROPERTIES
from fedtwin.service.served import Served
from fedtwin.service.things import Fleet, fleet_of, value_at

MOST = 5000
OF_THE_EDGE = (
    *("features/model/properties/version", "features/run/properties/round", "features/run/properties/total_queue"),
    *("features/run/properties/in_flight",),
)


def diff(served: Served, first: str, second: str) -> dict[str, Any]:
    """At most ``MOST`` of them, and how many more there are. A device that had not joined yet has nothing before."""
    before, after = fleet_of(served, first), fleet_of(served, second)
    found = [] if before is None or after is None else [*_of_the_edge(before, after), *_of_devices(before, after)]
    return {
        "from": None if before is None else before.seen.moment._asdict(),
        "to": None if after is None else after.seen.moment._asdict(),
        "changed": found[:MOST],
        "left_off": max(len(found) - MOST, 0),
    }


def _of_the_edge(before: Fleet, after: Fleet) -> list[dict[str, Any]]:
    then, now = before.thing(-1), after.thing(-1)
    pairs = [(path, value_at(then, f"{path}/value"), value_at(now, f"{path}/value")) for path in OF_THE_EDGE]
    return [_changed(after.ids[-1], *pair) for pair in pairs if pair[1] != pair[2]]


def _of_devices(before: Fleet, after: Fleet) -> list[dict[str, Any]]:
    found = []
    devices = max(len(before.seen.names), len(after.seen.names))
    ids = max(before.ids[:-1], after.ids[:-1], key=len)
    for one in PROPERTIES:
        then, now = before.column(one.path)[:-1], after.column(one.path)[:-1]
        then, now = ([*column, *[None] * (devices - len(column))] for column in (then, now))
        found += [
            (device, _changed(ids[device], one.path, old, new))
            for device, (old, new) in enumerate(zip(then, now, strict=True))
            if old != new
        ]
    return [changed for _, changed in sorted(found, key=lambda pair: pair[0])]


def _changed(thing: str, path: str, before: Any, after: Any) -> dict[str, Any]:
    return {"thing": thing, "path": path, "before": before, "after": after}
