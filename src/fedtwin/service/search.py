"""Search over the things of all runs: filtered, sorted, page by page."""

import base64
import binascii
import json
import re
from typing import Any, NamedTuple

from fedtwin.service.rql import Filter, NotRqlError, parse
from fedtwin.service.selecting import selected
from fedtwin.service.telling import UnansweredError
from fedtwin.service.things import Fleet, fleet_of
from fedtwin.service.twins import Twins

DEFAULT_SIZE, MOST, MOST_PATHS = 25, 200, 8
OPTION = re.compile(r"\s*(sort|size|cursor)\(([^()]*)\)\s*(?:,|$)")


class Options(NamedTuple):
    """``sort`` is paths, each with whether it falls; ``after`` and ``revisions`` are what a cursor says."""

    sort: tuple[tuple[str, bool], ...] = (("thingId", False),)
    size: int = DEFAULT_SIZE
    after: int = 0
    revisions: dict[str, int] | None = None


def options_of(text: str | None) -> Options:
    """``sort(+path,-path),size(n),cursor(c)``, in any order."""
    found, place = Options(), 0
    while text is not None and place < len(text):
        match = OPTION.match(text, place)
        if match is None:
            raise UnansweredError(
                400, f"option = {text[:100]!r} is not allowed: sort(+path,-path), size(n) and cursor(c) by commas."
            )
        name, given = match.groups()
        found = found._replace(**{"sort": _sort, "size": _size, "cursor": _cursor}[name](given))
        place = match.end()
    return found


def _sort(given: str) -> dict[str, Any]:
    paths = [path.strip() for path in given.split(",")]
    if len(paths) > MOST_PATHS:
        raise UnansweredError(400, f"sort(…) has {len(paths)} paths: {MOST_PATHS} are allowed.")
    # a plus is a space where an address is decoded as a form
    if not all(path.lstrip("+-").strip("/ ") for path in paths):
        raise UnansweredError(400, f"sort({given[:100]}) is not allowed: paths by commas, each with + or - before it.")
    return {"sort": tuple((path.lstrip("+-").strip("/ "), path.startswith("-")) for path in paths)}


def _size(given: str) -> dict[str, Any]:
    if not re.fullmatch(r"[0-9]{1,4}", given) or not 1 <= int(given) <= MOST:
        raise UnansweredError(400, f"size({given[:100]}) is not allowed: a whole number from 1 to {MOST}.")
    return {"size": int(given)}


def _cursor(given: str) -> dict[str, Any]:
    try:
        told = json.loads(base64.urlsafe_b64decode(given.encode("ascii") + b"=="))
        after, revisions = told["o"], told["r"]
        if not all(type(value) is int and 0 <= value < 2**53 for value in (after, *revisions.values())):
            raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError, binascii.Error, RecursionError):
        raise UnansweredError(400, f"cursor({given[:100]}) is not allowed: it is taken from the answer before.") from None
    return {"after": after, "revisions": revisions}


def filter_of(text: str | None) -> Filter | None:
    try:
        return None if text is None else parse(text)
    except NotRqlError as error:
        raise UnansweredError(400, f"filter = {text[:100] if text else ''!r} is not allowed: {error}.") from None


def search(twins: Twins, wanted: Filter | None, options: Options, namespaces: str | None, fields: str | None) -> dict[str, Any]:
    """One page; a cursor goes on at the moment its first page was of."""
    fleets = _fleets(twins, namespaces, options.revisions)
    found = [(fleet, row) for fleet in fleets for row in _rows(fleet, wanted)]
    columns: dict[tuple[str, str], list[Any]] = {}
    for path, falls in reversed(options.sort):
        columns |= {(fleet.served.id, path): fleet.column(path) for fleet in fleets}
        found.sort(key=lambda one, path=path: _order(columns[one[0].served.id, path][one[1]]), reverse=falls)  # type: ignore[misc]
    page = found[options.after : options.after + options.size]
    items = [selected(fleet.thing(fleet.devices[row]), fields) for fleet, row in page]
    end = options.after + len(page)
    if end >= len(found):
        return {"items": items}
    told = {"o": end, "r": {fleet.served.id: fleet.seen.moment.revision for fleet in fleets}}
    return {"items": items, "cursor": base64.urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")}


def count(twins: Twins, wanted: Filter | None, namespaces: str | None) -> int:
    return sum(len(_rows(fleet, wanted)) for fleet in _fleets(twins, namespaces, None))


def _fleets(twins: Twins, namespaces: str | None, revisions: dict[str, int] | None) -> list[Fleet]:
    runs = list(twins.runs) if namespaces is None else [name.strip() for name in namespaces.split(",")]
    served = [twins.runs[name] for name in dict.fromkeys(runs) if name in twins.runs]
    if revisions is not None:
        found = [fleet_of(one, f"revision:{revisions[one.id]}") for one in served if one.id in revisions]
    else:
        found = [fleet_of(one) for one in served if one.readable]
    return [fleet for fleet in found if fleet is not None]


def _rows(fleet: Fleet, wanted: Filter | None) -> list[int]:
    count = len(fleet.seen.names) + 1
    if wanted is None:
        return list(range(count))
    return [row for row, matches in enumerate(wanted.matches(fleet.column, count)) if matches]


def _order(value: Any) -> tuple[int, Any]:
    """What is not there first, then numbers, then texts; anything else has no order."""
    if value is None or isinstance(value, dict | list):
        return 0, 0
    return (2, value) if isinstance(value, str) else (1, value)
