"""The edge server's own thing: the model it holds, never its weights, and the run as a whole."""

import hashlib
from typing import Any

from fedtwin.errors import FedtwinError
from fedtwin.records.summary import judged_by
from fedtwin.runs import Run
from fedtwin.service.fleet import at_a_glance
from fedtwin.service.moments import Seen
from fedtwin.service.properties import Known, Provenance, shown
from fedtwin.service.served import Served


def edge_features(served: Served, run: Run, seen: Seen) -> dict[str, Any]:
    """``model`` (M of the twin) and ``run``."""
    now_s = seen.now_s
    told = {"version": shown(Known(seen.twin.model_version, now_s, "measured"), now_s), "digest": _digest(served, run, seen)}
    glance = at_a_glance(seen)
    whence: dict[str, Provenance] = {
        "round": "measured",
        "total_queue": "modelled",
        "in_flight": "measured",
        "min_mean_samples": "configured",
    }
    facts = {name: shown(Known(glance[name], now_s, source), now_s) for name, source in whence.items()}
    paused = {"paused": shown(Known(served.facts.paused, now_s, "measured"), now_s)} if run.is_live and seen.live else {}
    return {
        "model": {"properties": {**told, **_judged(served, run, now_s)}},
        "run": {"properties": {**facts, **paused}},
    }


def _judged(served: Served, run: Run, now_s: float) -> dict[str, Any]:
    """The last evaluation until then."""
    done = [row for row in served.evaluations() if row["clock_s"] <= now_s]
    name = judged_by(run.config).get("metric", "metric")
    if not done:
        nothing = shown(Known(None, None, "measured"), now_s)
        return {name: nothing, "loss": nothing} if run.config.learning is not None else {}
    last = done[-1]
    metric = last["test_accuracy"] if last["test_metric"] is None else last["test_metric"]
    found = {name: metric, "loss": last["test_loss"]}
    return {key: shown(Known(value, last["clock_s"], "measured"), now_s) for key, value in found.items()}


def _digest(served: Served, run: Run, seen: Seen) -> dict[str, Any]:
    """SHA-256 of the model: of a live run as its ledger has it, of a simulation that of the model it ended with."""
    now_s = seen.now_s
    if run.config.learning is None:
        return {**shown(Known(None, None, "measured"), now_s), "reason": "The run trains no model."}
    if run.is_live:
        found = served.facts.digest_at(seen.moment.revision)
        why = None if found else "The ledger names no model file at that moment."
    elif run.finished and seen.moment == run.moment():
        found = served.remembered("digest", _sha256)
        why = None if found else "The folder has no model."
    else:
        found, why = None, "A simulation keeps the model it ended with, and none of before."
    return {**shown(Known(found, now_s if found else None, "measured"), now_s), **({} if why is None else {"reason": why})}


def _sha256(run: Run) -> str | None:
    """Of the file that the run ended with, checked as it is read."""
    try:
        return hashlib.sha256(run.model_bytes()).hexdigest()
    except FedtwinError:
        return None
