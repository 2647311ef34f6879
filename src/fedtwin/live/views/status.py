"""What a person sees of a run: made from the facts of ``sight.py``, wherever they come from. Ages are wall seconds."""

from collections.abc import Callable, Mapping
from typing import Any

from fedtwin.twin import queue_at

Facts = Mapping[str, Any]
AgeOf = Callable[[float | None], float | None]
RATE_OVER_S = 60.0
SILENT_AFTER_S = 10.0
STATES = ("cut", "quarantined", "drained", "backed off", "offline", "in flight", "idle")
"""What a person should look at first comes first."""


def status_of(run: Facts, devices: Mapping[str, Facts], *, now_s: float, word_age_s: float | None = None) -> dict[str, Any]:
    """``{"run": …, "devices": […]}``, all of it plain.

    ``now_s`` is the run's clock; ``word_age_s`` how old the edge server's last word is, where that is how these are known.
    """
    scale = run["time_scale"]

    def age_s(at_s: float | None) -> float | None:
        return None if at_s is None else max(now_s - at_s, 0.0) * scale

    rows = device_rows(devices, run["queue_round"], run["min_mean_samples"], now_s, scale)
    still_s = age_s(run["still_since_s"])
    states = {state: sum(row["state"] == state for row in rows) for state in STATES}
    metric = run["metric"]
    return {
        "run": {
            **{key: run[key] for key in ("name", "policy", "mode", "round", "rounds", "version", "uploads")},
            "in_flight": states["in flight"] if rows else run["in_flight"],
            **_state(run, still_s, word_age_s),
            "changed": run.get("changed", {}),
            "uploads_per_min": _per_minute(run["recent_s"], now_s, scale),
            "last_upload_age_s": age_s(run["recent_s"][-1]) if run["recent_s"] else None,
            "metric": None
            if metric is None
            else {**{key: metric[key] for key in ("name", "value", "version")}, "age_s": age_s(metric["at_s"])},
            "energy_j": run["energy_j"],
            "devices": {"joined": run["joined"], **states},
            "word_age_s": word_age_s,
        },
        "devices": rows,
    }


def _state(run: Facts, still_s: float | None, word_age_s: float | None) -> dict[str, Any]:
    """How it goes on, and why it does not."""
    reasons = [*([run["trouble"]] if run["trouble"] else []), *run["reasons"]]
    if run["finished"]:
        return {"state": "finished", "why": []}
    if run["stopped"]:
        return {"state": "stopped", "why": ["fedtwin edge --resume goes on"]}
    if word_age_s is not None and word_age_s > SILENT_AFTER_S:
        return {"state": "silent", "why": [f"the edge server said nothing for {word_age_s:.0f} s"]}
    if not run["started"]:
        return {"state": "waiting", "why": [f"{run['joined']} of {run['start_with']} devices have joined", *reasons]}
    if run.get("ending"):
        return {"state": "ending", "why": [run["ending"], *reasons]}
    if run.get("paused"):
        return {"state": "paused", "why": ["fedtwin admin resume goes on", *reasons]}
    is_still = still_s is not None and still_s > run["warn_after_s"] and (reasons or not run["in_flight"])
    if is_still or run["trouble"]:
        return {"state": "stands still", "why": reasons or ["nobody was asked"]}
    return {"state": "running", "why": []}


def _per_minute(recent_s: list[float], now_s: float, scale: float) -> float:
    """Uploads mixed in a minute of wall time, over the last minute; over less where not more of them are kept."""
    last = [at_s for at_s in recent_s if (now_s - at_s) * scale <= RATE_OVER_S]
    over_s = RATE_OVER_S
    if len(last) == len(recent_s) and len(last) > 1:
        over_s = max((now_s - last[0]) * scale, 1e-3)
    return len(last) * 60.0 / over_s


def device_rows(
    devices: Mapping[str, Facts], round_: int, min_mean_samples: float, now_s: float, scale: float
) -> list[dict[str, Any]]:
    """``round_`` is the t of Q_n(t), ``scale`` wall seconds per second of the run's clock."""

    def age_s(at_s: float | None) -> float | None:
        return None if at_s is None else max(now_s - at_s, 0.0) * scale

    return [_device(name, facts, round_, min_mean_samples, age_s) for name, facts in devices.items()]


def _device(name: str, facts: Facts, round_: int, min_mean_samples: float, age_s: AgeOf) -> dict[str, Any]:
    """What is known of a device may be newer than the word of the run."""
    seen: Facts = facts.get("seen") or {}
    left_out: Facts | None = seen.get("left_out")
    learned = [fact["learned_s"] for key in ("gain", "cpu_hz", "compute_s") if (fact := facts.get(key)) is not None]
    state = facts["status"].replace("in-flight", "in flight") if left_out is None else left_out["state"]
    return {
        "name": name,
        "state": state,
        "state_age_s": age_s(seen.get("since_s")),
        "left_out": None if left_out is None else left_out["reason"],
        "known_age_s": age_s(max(learned, default=None)),
        "queue": queue_at(facts["queue"], facts["queue_round"], max(round_, facts["queue_round"]), min_mean_samples),
        "mean_cost": facts["mean_cost"] if facts["observations"] else None,
        "uploads": facts["observations"],
        "declines": facts["declines"],
        "last_upload_age_s": age_s(seen.get("uploaded_s")),
        "declined": seen.get("why"),
        "declined_age_s": age_s(seen.get("why_s")),
        **{key: seen.get(key) for key in ("predicted_s", "measured_s", "predicted_j", "measured_j")},
    }
