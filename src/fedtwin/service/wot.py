"""A thing as a W3C Web of Things Thing Description 1.1."""

from typing import Any
from urllib.parse import quote

from fedtwin.service.properties import BY_PATH

CONTEXT = "https://www.w3.org/2022/wot/td/v1.1"
MEDIA_TYPE = "application/td+json"
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def description(thing: dict[str, Any], *, tokens: bool) -> dict[str, Any]:
    """Every property of every feature can be read, and observed by the events of its run."""
    thing_id = thing["thingId"]
    run = quote(thing_id.partition(":")[0], safe="")
    base = f"/api/2/things/{quote(thing_id, safe='')}"
    security = {"scheme": "bearer", "in": "header"} if tokens else {"scheme": "nosec"}
    properties = {}
    for feature, held in thing["features"].items():
        for name, known in held["properties"].items():
            path = f"features/{feature}/properties/{name}"
            form = {"href": f"{base}/{path}", "op": ["readproperty"], "contentType": "application/json"}
            properties[f"{feature}_{name}"] = {**_described(path, known["value"]), "readOnly": True, "forms": [form]}
    events = {
        "changed": {
            "title": "What happens in the run",
            "data": {"type": "object"},
            "forms": [{"href": f"/api/runs/{run}/events", "op": ["subscribeevent"], "subprotocol": "sse"}],
        }
    }
    return {
        "@context": [CONTEXT, {"fedtwin": "urn:fedtwin:"}],
        "id": f"urn:fedtwin:{quote(thing_id, safe=':')}",
        "title": thing["attributes"].get("name") or thing_id,
        "securityDefinitions": {"access": security},
        "security": ["access"],
        "properties": properties,
        "events": events,
    }


def _described(path: str, value: Any) -> dict[str, Any]:
    """A property is an object: its value, when it was learned, its age and its provenance."""
    one = BY_PATH.get(path)
    kind = one.kind if one is not None else TYPES.get(type(value), "string")
    inner: dict[str, Any] = {"type": kind}
    if one is not None and one.unit is not None:
        inner["unit"] = one.unit
    seconds = {"type": "number", "unit": "s"}
    provenance = {"type": "string", "enum": ["measured", "estimated", "modelled", "configured"]}
    found: dict[str, Any] = {"title": path.rpartition("/")[2]}
    if one is not None:
        found["description"] = one.description
    fields = {"value": inner, "time_s": seconds, "age_s": seconds, "provenance": provenance}
    return {**found, "type": "object", "properties": fields}
