"""The OpenAPI document, from the table of routes."""

from collections.abc import Sequence
from typing import Any

from fedtwin import __version__
from fedtwin.service.parameters import schema_of
from fedtwin.service.routes import Route

GIVES: dict[str, dict[str, Any]] = {
    "object": {"type": "object"},
    "array": {"type": "array", "items": {"type": "object"}},
    "integer": {"type": "integer", "minimum": 0},
    "any": {},
    "runs": {
        "type": "object",
        "required": ["runs", "role", "by_token"],
        "properties": {
            "runs": {"type": "array", "items": {"type": "object"}},
            "role": {"enum": ["viewer", "operator"]},
            "by_token": {"type": "boolean"},
        },
    },
}
PATH_PARAMETERS = {
    "run": ("a run, as /api/runs lists it", "^[A-Za-z][A-Za-z0-9_-]*$"),
    "thing": ("a thing, RUN:NAME; the edge server is RUN:edge", None),
}
REFUSALS = {
    "400": "a parameter that is not allowed",
    "401": "a token is needed",
    "403": "not for this token, or code of a run's owner without --trust",
    "404": "not there",
    "405": "another method is allowed",
    "409": "a run that cannot be read, or an order that cannot be given",
    "413": "too long a body",
    "415": "a body that is not JSON",
    "422": "a question that takes too long",
    "429": "too many requests",
    "503": "a run that is still being read",
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """All that can be asked; what is refused is always a status and a sentence."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "fedtwin", "version": __version__, "description": "The digital twins of runs."},
        "paths": paths,
        "components": {
            "schemas": {
                "Refusal": {
                    "type": "object",
                    "required": ["status", "error"],
                    "properties": {"status": {"type": "integer"}, "error": {"type": "string", "description": "one sentence"}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    content = {kind: {"schema": GIVES[route.gives] if kind == "application/json" else {}} for kind in route.media_types}
    found: dict[str, Any] = {
        "summary": route.summary,
        "tags": [route.group],
        "operationId": f"{route.method.lower()}_{'_'.join(part.strip('{}') for part in route.segments)}".replace(".", "_"),
        "parameters": [*_of_the_path(route), *_of_the_query(route)],
        "responses": {
            "200": {"description": "the answer", "content": content},
            **{status: {"description": why, "content": _REFUSAL} for status, why in REFUSALS.items()},
        },
    }
    if route.tagged:
        found["parameters"].append({"name": "If-None-Match", "in": "header", "schema": {"type": "string"}})
        found["responses"]["304"] = {"description": "as it was"}
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    if route.role != "anyone":
        found["security"] = [{}, {"token": []}]
        found["x-role"] = route.role
    return found


def _of_the_path(route: Route) -> list[dict[str, Any]]:
    found = []
    for part in route.segments:
        if part.startswith("{"):
            name = part.strip("{}")
            description, pattern = PATH_PARAMETERS.get(name, (name, None))
            schema = {"type": "string", "minLength": 1, **({"pattern": pattern} if pattern else {})}
            found.append({"name": name, "in": "path", "required": True, "description": description, "schema": schema})
    return found


def _of_the_query(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "in": "query",
            "required": one.required,
            "description": one.description,
            "schema": dict(schema_of(one)),
            **({"example": one.example} if one.example is not None else {}),
        }
        for one in route.parameters
    ]


_REFUSAL = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
