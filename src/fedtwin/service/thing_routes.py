"""The routes of things, in the shape of Eclipse Ditto's HTTP API 2."""

from typing import Any

from fedtwin.service.diff import diff
from fedtwin.service.events import of_run
from fedtwin.service.parameters import Parameter
from fedtwin.service.rollups import HAS_HISTORY, history
from fedtwin.service.routes import Answer, Asked, Route
from fedtwin.service.run_routes import AT_, FROM, TO
from fedtwin.service.search import count, filter_of, options_of, search
from fedtwin.service.selecting import selected
from fedtwin.service.telling import UnansweredError
from fedtwin.service.things import Fleet, find_thing, fleet_of, split
from fedtwin.service.twins import Twins
from fedtwin.service.wot import MEDIA_TYPE, description

EVENTS = "text/event-stream"
FIELDS = Parameter("fields", "string", "which parts, such as thingId,features(link,compute)", example="thingId,attributes")
IDS = Parameter("ids", "string", "ids of things, by commas")
NAMESPACES = Parameter("namespaces", "string", "ids of runs, by commas")
FILTER = Parameter("filter", "string", "a filter in Ditto's RQL", example='eq(features/training/properties/status,"idle")')
OPTION = Parameter("option", "string", "sort(+path), size(n) and cursor(c), by commas", example="sort(-thingId),size(5)")
PROPERTY = Parameter("property", "string", f"one of {', '.join(HAS_HISTORY)}", required=True, example=HAS_HISTORY[0])
BUCKETS = Parameter("buckets", "integer", "so many parts", 200, within=(1, 2000))


def etag(fleet: Fleet, at: str) -> str:
    """Names the moment; one that is named by a second has ages of its own."""
    seconds = f":{fleet.seen.moment.seconds!r}" if at.startswith("seconds:") else ""
    return f'"rev:{fleet.seen.moment.revision}{seconds}"'


def _tagged(asked: Asked, tag: str, make: Any, media_type: str = "application/json") -> Answer:
    """With its ETag; without content where the one who asks has it already."""
    known = [one.strip().removeprefix("W/") for one in asked.headers.get("if-none-match", "").split(",")]
    headers = {"ETag": tag, "Vary": "Accept"}
    if tag in known or "*" in known:
        return Answer(b"", 304, headers)
    return Answer(make(), 200, headers, media_type)


def _things(twins: Twins, asked: Asked) -> Any:
    query = asked.query
    if EVENTS in asked.headers.get("accept", ""):
        return _streamed(twins, asked)
    if query["ids"] is not None:
        found = [find_thing(twins, one.strip(), query["at"]) for one in query["ids"].split(",")]
        return [selected(fleet.thing(device), query["fields"]) for fleet, device in found]
    fleets = [fleet_of(served, query["at"]) for served in twins.runs.values() if served.readable]
    return [selected(fleet.thing(device), query["fields"]) for fleet in fleets if fleet is not None for device in fleet.devices]


def _streamed(twins: Twins, asked: Asked) -> Any:
    """The events of one run: of those whose things are named, or the only one."""
    ids = asked.query["ids"]
    runs = {split(twins, one.strip())[0].id for one in ids.split(",")} if ids is not None else set(twins.runs)
    if len(runs) != 1:
        raise UnansweredError(400, "ids must name things of one run where events are asked for: a stream is of one run.")
    return of_run(twins.run(runs.pop()), asked.headers.get("last-event-id"))


def _thing(twins: Twins, asked: Asked) -> Any:
    fleet, device = find_thing(twins, asked.path["thing"], asked.query["at"])
    tag = etag(fleet, asked.query["at"])
    if MEDIA_TYPE in asked.headers.get("accept", ""):
        return _tagged(
            asked,
            f'{tag[:-1]}:td"',
            lambda: description(fleet.thing(device), tokens=twins.access.tokens is not None),
            MEDIA_TYPE,
        )
    return _tagged(asked, tag, lambda: selected(fleet.thing(device), asked.query["fields"]))


def _part(twins: Twins, asked: Asked) -> Any:
    """What stands at a path of the thing: attributes, features, a feature, its properties, or one of them."""
    fleet, device = find_thing(twins, asked.path["thing"], asked.query["at"])
    found: Any = fleet.thing(device)
    for part in asked.segments[4:]:
        if not isinstance(found, dict) or part not in found:
            raise UnansweredError(
                404, f"The thing {asked.path['thing'][:100]!r} has no {'/'.join(asked.segments[4:])[:100]!r}."
            )
        found = found[part]
    return _tagged(asked, etag(fleet, asked.query["at"]), lambda: found)


def _search(twins: Twins, asked: Asked) -> Any:
    query = asked.query
    return search(twins, filter_of(query["filter"]), options_of(query["option"]), query["namespaces"], query["fields"])


def _count(twins: Twins, asked: Asked) -> Any:
    return count(twins, filter_of(asked.query["filter"]), asked.query["namespaces"])


def _history(twins: Twins, asked: Asked) -> Any:
    query = asked.query
    fleet, device = find_thing(twins, asked.path["thing"], "latest")
    if device < 0:
        raise UnansweredError(404, f"The thing {asked.path['thing'][:100]!r} has no history: that of the run is in its curves.")
    key = query["property"], query["buckets"], query["from_s"], query["to_s"]
    return fleet.served.remembered(("history", device, *key), lambda run: history(run, device, *key))


def _diff(twins: Twins, asked: Asked) -> Any:
    return diff(twins.run(asked.path["run"]), asked.query["from"], asked.query["to"])


def _named(name: str, description: str, default: str | None = None) -> Parameter:
    return Parameter(name, "string", description, default, required=default is None, pattern=AT_.pattern, example="round:20")


PARTS = {
    "/attributes": "What never changes of it",
    "/attributes/{attribute}": "One of these",
    "/features": "All its features",
    "/features/{feature}": "One feature: link, compute, energy or training; model or run of the edge server",
    "/features/{feature}/properties": "The properties of a feature",
    "/features/{feature}/properties/{property}": "One property: value, time, age and provenance",
    "/features/{feature}/properties/{property}/{field}": "One of these",
}
ROUTES = (
    Route(
        "GET",
        "/api/2/things",
        "Things, all or those named; their events with Accept: text/event-stream",
        _things,
        (IDS, FIELDS, AT_),
        group="things",
        gives="array",
        media_types=("application/json", EVENTS),
    ),
    Route(
        "GET",
        "/api/2/things/{thing}",
        "One thing; its WoT description with Accept: application/td+json",
        _thing,
        (FIELDS, AT_),
        group="things",
        tagged=True,
        media_types=("application/json", MEDIA_TYPE),
    ),
    Route(
        "GET",
        "/api/2/things/{thing}/history",
        "How a property of a device went",
        _history,
        (PROPERTY, FROM, TO, BUCKETS),
        group="things",
    ),
    *(
        Route("GET", f"/api/2/things/{{thing}}{path}", summary, _part, (AT_,), group="things", gives="any", tagged=True)
        for path, summary in PARTS.items()
    ),
    Route(
        "GET",
        "/api/2/search/things",
        "Things that match a filter",
        _search,
        (FILTER, OPTION, FIELDS, NAMESPACES),
        group="things",
    ),
    Route("GET", "/api/2/search/things/count", "How many match", _count, (FILTER, NAMESPACES), group="things", gives="integer"),
    Route(
        "GET",
        "/api/runs/{run}/diff",
        "What is different between two moments",
        _diff,
        (_named("from", "the first moment, as for at"), _named("to", "the second", "latest")),
    ),
)
