"""What runs there are, and what each of them is."""

from typing import Any

from fedtwin.config import settings
from fedtwin.errors import FedtwinError
from fedtwin.records.summary import judged_by
from fedtwin.runs import Run
from fedtwin.service.places import has_positions
from fedtwin.service.served import Served
from fedtwin.service.telling import UnansweredError

KEYS = (
    *("kind", "finished", "scheme", "policy", "mode", "seed", "devices", "rounds", "end_s", "trains", "metric", "positions"),
    *("stopped", "paused"),
)


def listed(served: Served) -> dict[str, Any]:
    """One run in a line; where it cannot be read, why."""
    try:
        if served.glance is not None and not served.is_indexed and served.glance.config.run.mode == "async":
            told = _told(served.glance, served.glance.devices.num_rows, at_a_glance=True)
        else:
            told = served.remembered("listed", lambda run: _told(run, len(served.names())))
    except UnansweredError as reason:
        return {"id": served.id, **dict.fromkeys(KEYS), "unreadable": reason.sentence}
    except FedtwinError as error:
        return {"id": served.id, **dict.fromkeys(KEYS), "unreadable": served.without_folder(str(error))}
    goes_on = not told["finished"]
    stands = {"stopped": goes_on and not served.is_written, "paused": goes_on and served.facts.paused}
    return {"id": served.id, **told, **stands, "unreadable": served.trouble}


def described(served: Served) -> dict[str, Any]:
    """The same with its summary and all its settings."""
    with served.reading() as run:
        summary: dict[str, Any] = served.remembered("summary", lambda run: run.summary)
        changed = served.facts.changed_at(2**62)
        config = {name: value for name, value in settings(run.config).items() if value is not None}
        notes = [] if run.finished else ["The run has not ended: all numbers are of what is written down so far."]
        if served.facts.paused:
            notes.append("The run is paused.")
        notes += [sentence for sentence in (summary.get("incomplete"), served.trouble) if sentence]
        more = {"summary": summary, "settings": config, "changed": changed, "notes": notes}
        return {**listed(served), **more, "folder": run.path.resolve().name}


def _told(run: Run, devices: int, *, at_a_glance: bool = False) -> dict[str, Any]:
    config = run.config
    try:
        moment = None if at_a_glance else run.moment()
        round_, end_s = (moment.round, moment.seconds) if moment else (config.run.rounds, run.summary["virtual_time_s"])
    except FedtwinError:  # no round is written down, or none has begun
        round_, end_s = 0, 0.0
    return {
        "kind": "live" if run.is_live else "simulation",
        "finished": run.finished,
        "scheme": _scheme(run),
        "policy": config.policy.name,
        "mode": config.run.mode,
        "seed": config.run.seed,
        "devices": devices,
        "rounds": round_,
        "end_s": end_s,
        "trains": config.learning is not None,
        "metric": judged_by(config).get("metric"),
        "positions": has_positions(run),
    }


def _scheme(run: Run) -> str:
    """As its summary has it; of a run with code of its own that has not ended, the policy's name."""
    if run.finished:
        return str(run.summary.get("scheme", run.config.policy.name))
    if "policy.name" in run.config.own_code:
        return run.config.policy.name
    from fedtwin.policies import scheme_name

    return scheme_name(run.config)
