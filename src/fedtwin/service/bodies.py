"""Checks a JSON body by the schema that its route shows: the few words of JSON Schema that our routes use."""

import math
import re
from collections.abc import Mapping
from typing import Any

from fedtwin.service.telling import UnansweredError

KINDS: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def check_body(schema: Mapping[str, Any], value: Any, name: str = "the body") -> None:
    """One sentence where the value does not fit."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(kind, value) for kind in kinds):
        raise _refused(name, value, f"it must be of type {' or '.join(kinds)}")
    if "enum" in schema and value not in schema["enum"]:
        raise _refused(name, value, f"it must be one of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, dict):
        _check_object(schema, value, name)
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            raise _refused(name, "…", f"it has more than {schema['maxItems']} items")
        for number, item in enumerate(value):
            check_body(schema.get("items", {}), item, f"{name}[{number}]")
    elif isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1000):
            raise _refused(name, value, f"its length must be at most {schema.get('maxLength', 1000)}")
        if "pattern" in schema and not re.search(schema["pattern"], value, re.ASCII):
            raise _refused(name, value, f"it must match {schema['pattern']}")
    elif not isinstance(value, bool) and value is not None:
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        if not low <= value <= high:
            raise _refused(name, value, f"it must lie between {low} and {high}")


def _is(kind: str, value: Any) -> bool:
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _check_object(schema: Mapping[str, Any], value: dict[str, Any], name: str) -> None:
    inner: Mapping[str, Any] = schema.get("properties", {})
    rest = schema.get("additionalProperties", False)
    if missing := [key for key in schema.get("required", ()) if key not in value]:
        raise UnansweredError(400, f"{name} has no {missing[0]!r}: it is needed.")
    if len(value) > schema.get("maxProperties", len(value)):
        raise _refused(name, "…", f"it has more than {schema['maxProperties']} entries")
    for key, item in value.items():
        if key not in inner and rest is False:
            raise UnansweredError(400, f"{key[:100]!r} is not known in {name}: allowed are {', '.join(inner)}.")
        check_body(inner.get(key, rest), item, key[:100])


def _refused(name: str, value: Any, why: str) -> UnansweredError:
    return UnansweredError(400, f"{name} = {str(value)[:100]!r} is not allowed: {why}.")
