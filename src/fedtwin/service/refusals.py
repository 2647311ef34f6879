"""What was refused, and who is in quarantine."""

from typing import Any

from fedtwin.service.served import Served

STRANGER = "a stranger"


def refusals(served: Served, limit: int) -> dict[str, Any]:
    """The last ones, newest first; ``quarantined`` is of now."""
    every, names = served.refusals(), served.names()
    last = every[max(len(every) - limit, 0) :]
    listed = [{**row, "name": names[row["device"]] if 0 <= row["device"] < len(names) else STRANGER} for row in reversed(last)]
    quarantined = [
        {"name": name, "since_s": known.since_s, "reason": known.reason} for name, known in served.facts.quarantined.items()
    ]
    return {"refusals": listed, "quarantined": quarantined, "left_off": len(every) - len(last)}
