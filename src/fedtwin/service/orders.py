"""Orders to the edge server of a live run: the same that ``fedtwin admin`` gives, so into its ledger, with who gave them."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedtwin.errors import FedtwinError
from fedtwin.runs import Run
from fedtwin.service.routes import Asked
from fedtwin.service.served import Served
from fedtwin.service.telling import UnansweredError
from fedtwin.service.things import find_thing, split
from fedtwin.service.twins import Broker, Twins

COMMANDS = ("pause", "resume", "drain", "release", "set", "finish", "stop")
BODY = {
    "type": "object",
    "required": ["order"],
    "additionalProperties": False,
    "properties": {
        "order": {"type": "string", "enum": list(COMMANDS)},
        "device": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "setting": {"type": "string", "maxLength": 100},
        "value": {"type": ["number", "boolean"]},
    },
}


def give(twins: Twins, asked: Asked) -> dict[str, Any]:
    """``stop`` ends the run in good order, as ``finish`` does."""
    served, body = twins.run(asked.path["run"]), asked.body
    command = "finish" if body["order"] == "stop" else body["order"]
    about = {name: body[name] for name in ("device", "setting", "value") if name in body}
    return {"order": body["order"], "said": _ordered(twins, served, command, about, asked.who)}


def desire(twins: Twins, asked: Asked) -> dict[str, Any]:
    """A desired property becomes an order: a device is drained or idle, the run paused or not, a setting has a value."""
    served, name = split(twins, asked.path["thing"])
    find_thing(twins, asked.path["thing"], "latest")
    feature, wanted, value = asked.path["feature"], asked.path["property"], asked.body
    about: dict[str, Any]
    if (feature, wanted) == ("training", "status") and value in ("drained", "idle") and name != "edge":
        command, about = ("drain" if value == "drained" else "release"), {"device": name}
    elif (feature, wanted) == ("run", "paused") and isinstance(value, bool) and name == "edge":
        command, about = ("pause" if value else "resume"), {}
    elif feature == "settings" and isinstance(value, int | float) and name == "edge":
        command, about = "set", {"setting": wanted, "value": value}
    else:
        allowed = "features/training status (drained or idle) of a device; run paused, and settings NAME, of the edge server"
        raise UnansweredError(400, f"{feature[:50]}/{wanted[:50]} cannot be desired so: {allowed} can.")
    return {"order": command, "said": _ordered(twins, served, command, about, asked.who)}


def _ordered(twins: Twins, served: Served, command: str, about: dict[str, Any], who: str | None) -> str:
    with served.reading() as run:
        if not run.is_live or run.finished:
            what = "has ended" if run.is_live else "is a simulation"
            raise UnansweredError(409, f"The run {served.id!r} takes no orders: it {what}.")
        place, identity = _place(twins, run), _identity(run)
    from fedtwin.live.agents import order

    name = served.facts.run_name or "main"
    person = f"{who or 'somebody'}, by fedtwin serve"
    try:
        return order(
            command,  # type: ignore[arg-type]
            list(place.servers),
            run=name,
            credentials=place.credentials,
            insecure=place.insecure,
            person=person,
            identity=identity,
            **about,
        )
    except FedtwinError as error:
        raise UnansweredError(409, str(error)) from None


def _identity(run: Run) -> str:
    """At the broker there may be another run of the same name by now."""
    from fedtwin.runs.live import LiveRunFolder

    if not isinstance(run, LiveRunFolder) or (identity := run.identity) is None:
        raise UnansweredError(409, "The run takes no orders yet: its ledger does not say which run it is.")
    return identity


def _place(twins: Twins, run: Run) -> Broker:
    """The broker that was given, or beside an edge server the one it has started itself on this machine."""
    if twins.broker is None:
        raise UnansweredError(409, "Orders need fedtwin serve --server URL: where the broker of the run is.")
    if twins.broker.servers or not twins.broker.beside:
        return twins.broker
    with suppress(OSError, ValueError, LookupError, TypeError):
        url = str(json.loads((Path(run.path) / "broker" / "broker.json").read_text(encoding="utf-8"))["url"])
        if _is_here(url):
            return Broker((url,), twins.broker.credentials, twins.broker.insecure, True)
    raise UnansweredError(409, "The broker of the run has not been found: it is not up, or not on this machine.")


def _is_here(url: str) -> bool:
    from urllib.parse import urlsplit

    from fedtwin.live.wire.addresses import is_loopback

    return is_loopback(urlsplit(url).hostname or "")
