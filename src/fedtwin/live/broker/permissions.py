"""What every member of a fleet may publish and subscribe to; the broker enforces it.

The broker does not check whose subject a message names for the answer. So no device may call anything that answers with bytes
it has chosen: a consumer has a delivery subject, and a direct get from a device's own bucket answers with what the device put
there. Either would put words of one device onto the subjects of another. What a device may call answers with the broker's own
words, or with models.
"""

import json
from typing import Any

from fedtwin.live.wire.protocol import Subjects

API = "$JS.API"
Permissions = dict[str, Any]


def permissions_of(device: str, run: str) -> Permissions:
    """A device speaks and listens under its own name, writes its own bucket, reads models, and answers when asked."""
    subjects = Subjects(run)
    own, models = subjects.uploads_bucket(device), subjects.models_bucket
    return {
        "publish": {
            "allow": [
                *(subjects.hello(device), subjects.beat(device), subjects.upload(device), subjects.result(device)),
                *(
                    f"$O.{own}.>",
                    f"{API}.STREAM.INFO.OBJ_{own}",
                    f"{API}.STREAM.MSG.GET.OBJ_{own}",
                    f"{API}.STREAM.PURGE.OBJ_{own}",
                ),
                *_reading(models),
            ]
        },
        "subscribe": {"allow": [subjects.ask(device), subjects.task(device), subjects.call, f"_INBOX.{device}.>"]},
        "allow_responses": {"max": 1, "expires": "1m"},
    }


def role_permissions(role: str, run: str) -> Permissions:
    """The evaluator reads models and answers. The edge server runs everything, but cannot speak for a device."""
    subjects = Subjects(run)
    if role == "evaluator":
        return {
            "publish": {"allow": _reading(subjects.models_bucket)},
            "subscribe": {"allow": [subjects.evaluate, "_INBOX.evaluator.>"]},
            "allow_responses": {"max": 1, "expires": "1h"},
        }
    return {
        "publish": {
            "allow": [
                *(subjects.call, subjects.evaluate, subjects.pulse, subjects.ask("*"), subjects.task("*"), "_INBOX.>"),
                *(subjects.lease, subjects.ledger),
                *(f"{API}.>", "$JS.ACK.>", "$JS.FC.>", f"$KV.{subjects.twin_bucket}.>", "$O.>"),
            ]
        },
        "subscribe": {"allow": [f"fedtwin.{run}.>", "_INBOX.edge.>"]},
    }


def users_text(users: dict[str, Permissions]) -> str:
    """The broker's ``authorization`` block. Edge server and evaluator do not speak MQTT."""
    lines = [
        "# Made by fedtwin provision; the broker reads it when it starts and when it is told to reload.",
        "authorization {",
        "  users = [",
    ]
    for user, permissions in users.items():
        kinds = ["STANDARD"] if user.split("@")[0] in ("edge", "evaluator") else ["STANDARD", "MQTT"]
        entry = {"user": user, "allowed_connection_types": kinds, "permissions": permissions}
        lines.append(f"    {json.dumps(entry)}")
    return "\n".join([*lines, "  ]", "}", ""])


def _reading(bucket: str) -> list[str]:
    stream = f"OBJ_{bucket}"
    return [
        *(f"{API}.STREAM.INFO.{stream}", f"{API}.STREAM.MSG.GET.{stream}"),
        *(f"{API}.DIRECT.GET.{stream}", f"{API}.DIRECT.GET.{stream}.>"),
    ]
