"""Ditto's field selector: ``thingId,features(link/properties/gain,compute)`` picks parts of a JSON document."""

from typing import Any

from fedtwin.service.telling import UnansweredError

DEEPEST = 20


def selected(document: dict[str, Any], fields: str | None) -> dict[str, Any]:
    """The parts that are asked for, where they stand in the document; what it does not have is left out."""
    if fields is None:
        return document
    found: dict[str, Any] = {}
    for path in paths(fields):
        _copy(document, found, path)
    return found


def paths(fields: str) -> list[list[str]]:
    """Every path that a selector names."""
    found, rest = _paths(fields, 0, 0)
    if rest != len(fields):
        raise _no_selector(fields)
    return found


def _paths(text: str, place: int, depth: int) -> tuple[list[list[str]], int]:
    """Up to the end, or to a closing bracket."""
    found: list[list[str]] = []
    while True:
        end = place
        while end < len(text) and text[end] not in ",()":
            end += 1
        own = [part for part in text[place:end].strip().split("/") if part]
        if not own or depth > DEEPEST:
            raise _no_selector(text)
        if end < len(text) and text[end] == "(":
            inner, end = _paths(text, end + 1, depth + 1)
            if end >= len(text) or text[end] != ")":
                raise _no_selector(text)
            found += [[*own, *path] for path in inner]
            end += 1
        else:
            found.append(own)
        if end >= len(text) or text[end] != ",":
            return found, end
        place = end + 1


def _copy(document: Any, found: dict[str, Any], path: list[str]) -> None:
    for part in path[:-1]:
        if not isinstance(document, dict) or part not in document:
            return
        document, found = document[part], found.setdefault(part, {})
        if not isinstance(found, dict):
            return
    if isinstance(document, dict) and path[-1] in document:
        found[path[-1]] = document[path[-1]]


def _no_selector(text: str) -> UnansweredError:
    return UnansweredError(
        400, f"fields = {text[:100]!r} is not allowed: paths by commas, such as thingId,features(link,compute)."
    )
