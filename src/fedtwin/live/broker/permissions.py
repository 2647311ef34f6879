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
ROLES = ("edge", "evaluator", "operator", "viewer")
WHO_AM_I = "$SYS.REQ.USER.INFO"  # the broker tells everybody their own rights, and its time
Permissions = dict[str, Any]


def permissions_of(device: str, run: str) -> Permissions:
    """A device speaks and listens under its own name, writes its own bucket, reads models, and answers when asked."""
    subjects = Subjects(run)
    own, models = subjects.uploads_bucket(device), subjects.models_bucket
    return {
        "publish": {
            "allow": [
                *(subjects.hello(device), subjects.beat(device), subjects.upload(device), subjects.result(device)),
                subjects.trial(device),
                *(
                    f"$O.{own}.>",
                    f"{API}.STREAM.INFO.OBJ_{own}",
                    f"{API}.STREAM.MSG.GET.OBJ_{own}",
                    f"{API}.STREAM.PURGE.OBJ_{own}",
                ),
                *_reading(models),
                WHO_AM_I,
            ]
        },
        "subscribe": {"allow": [subjects.ask(device), subjects.task(device), subjects.call, f"_INBOX.{device}.>"]},
        "allow_responses": {"max": 1, "expires": "1m"},
    }


def role_permissions(role: str, run: str) -> Permissions:
    """The evaluator reads models and answers; a viewer reads the twin's bucket and nothing else; the operator may do that too,
    and gives orders to the edge server. That one runs everything, but cannot speak for a device.
    """
    subjects = Subjects(run)
    if role == "evaluator":
        return {
            "publish": {"allow": [*_reading(subjects.models_bucket), WHO_AM_I]},
            "subscribe": {"allow": [subjects.evaluate, "_INBOX.evaluator.>"]},
            "allow_responses": {"max": 1, "expires": "1h"},
        }
    if role == "operator":
        return {"publish": {"allow": [subjects.admin, *_looking(subjects)]}, "subscribe": {"allow": ["_INBOX.operator.>"]}}
    if role == "viewer":
        return {"publish": {"allow": _looking(subjects)}, "subscribe": {"allow": ["_INBOX.viewer.>"]}}
    return {
        "publish": {
            "allow": [
                *(subjects.call, subjects.evaluate, subjects.pulse, subjects.ask("*"), subjects.task("*"), "_INBOX.>"),
                *(subjects.lease, subjects.ledger),
                *(f"{API}.>", "$JS.ACK.>", "$JS.FC.>", f"$KV.{subjects.twin_bucket}.>", "$O.>"),
                WHO_AM_I,
            ]
        },
        "subscribe": {"allow": [f"fedtwin.{run}.>", "_INBOX.edge.>"]},
    }


def in_all(permissions: list[Permissions]) -> Permissions:
    """Of a member of several runs: what it may in any of them."""
    merged = dict(permissions[0])
    for way in ("publish", "subscribe"):
        subjects = [subject for one in permissions for subject in one[way]["allow"]]
        merged[way] = {"allow": list(dict.fromkeys(subjects))}
    return merged


def users_text(users: dict[str, Permissions]) -> str:
    """The broker's ``authorization`` block. Roles do not speak MQTT."""
    lines = [
        "# Made by fedtwin provision; the broker reads it when it starts and when it is told to reload.",
        "authorization {",
        "  users = [",
    ]
    for user, permissions in users.items():
        kinds = ["STANDARD"] if user.split("@")[0] in ROLES else ["STANDARD", "MQTT"]
        entry = {"user": user, "allowed_connection_types": kinds, "permissions": permissions}
        lines.append(f"    {json.dumps(entry)}")
    return "\n".join([*lines, "  ]", "}", ""])


def _looking(subjects: Subjects) -> list[str]:
    """What is in the twin's bucket, in the broker's own words: a direct get would answer with what devices have said."""
    stream = f"KV_{subjects.twin_bucket}"
    return [f"{API}.STREAM.INFO.{stream}", f"{API}.STREAM.MSG.GET.{stream}", WHO_AM_I]


def _reading(bucket: str) -> list[str]:
    stream = f"OBJ_{bucket}"
    return [
        *(f"{API}.STREAM.INFO.{stream}", f"{API}.STREAM.MSG.GET.{stream}"),
        *(f"{API}.DIRECT.GET.{stream}", f"{API}.DIRECT.GET.{stream}.>"),
    ]
