"""Every promise about the ledger of a run in synchronous rounds, recomputed from its lines alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.live.adding_device import SAMPLES
from tests.live.chaos import ENTRIES, MIN_MEAN_SAMPLES, Ledger, uploaded_in


def check_rounds(folder: Path, channels: int) -> dict[str, int]:
    """Raises where a promise is broken."""
    lines = (folder / "run" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    log: Ledger = [json.loads(line) for line in lines]
    found = check_rounds_log(log, folder / "run" / "model.safetensors", uploaded_in(folder), channels)
    summary = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    counts = summary["rounds"], summary["uploads_applied"], summary["model_version"]
    assert counts == (found["tasks"], found["applied"], found.pop("version"))
    return found


def check_rounds_log(log: Ledger, final: Path, uploaded: set[str], channels: int) -> dict[str, int]:
    """The same from the lines of a ledger alone, the newest model, and the tokens of what the broker has acknowledged.

    Devices add 1 to entry ``round`` of what they were sent, so a mean of them does too.
    """
    model = np.zeros(ENTRIES, np.float64)
    tasks: dict[str, str] = {}
    queues: dict[int, tuple[float, int]] = {}
    this_round: dict[str, str] = {}
    is_open = is_full = False
    round_ = version = closed = applied = devices = 0
    for event in log:
        match event["kind"]:
            case "started":
                devices = len(event["names"])
            case "joined" if devices:  # later than the others: its queue begins now
                queues[devices] = 0.0, max(round_, 1)
                devices += 1
            case "opened":
                assert not is_open and event["round"] == round_ + 1, "a round was opened in another one, or skipped"
                is_open, is_full, round_, this_round = True, False, event["round"], {}
            case "asked":
                assert is_open and not is_full and event["round"] == round_, "somebody was asked for no open round"
                queue, since = queues.get(event["device"], (0.0, 1))
                assert event["queue"] == queue + (round_ - since) * MIN_MEAN_SAMPLES, "a queue was lost"
            case "dispatched":
                assert event["token"] not in tasks, "a token was used twice"
                assert event["version"] == version, "an old model was handed out"
                tasks[event["token"]] = this_round[event["token"]] = "open"
                assert len(this_round) <= channels, "more devices than channels"
                queue, since = queues.get(event["device"], (0.0, 1))
                now = queue + (round_ - since) * MIN_MEAN_SAMPLES
                queues[event["device"]] = max(now + MIN_MEAN_SAMPLES - SAMPLES, 0.0), round_ + 1
            case "filled":
                is_full = True
            case "applied" | "given-up":
                assert this_round[event["token"]] == "open", "a task ended twice, or after its round"
                tasks[event["token"]] = this_round[event["token"]] = event["kind"]
                applied += event["kind"] == "applied"
            case "closed":
                assert is_open and is_full and "open" not in this_round.values(), "a round was closed before its end"
                in_time = "applied" in this_round.values()
                assert event["version"] == version + in_time, "a version was skipped"
                model[round_ % ENTRIES] += in_time
                is_open, version, closed = False, event["version"], closed + 1
    assert not is_open, "the last round is open"
    np.testing.assert_allclose(load_file(final)["marks"], model, rtol=1e-5)
    ended = {token for token, how in tasks.items() if how != "open"}
    refused = {event["token"] for event in log if event["kind"] == "refused" and "token" in event}
    assert uploaded <= ended | refused, "an upload was lost after it was acknowledged"
    return {
        "version": version,
        "tasks": len(tasks),
        "applied": applied,
        "rounds": closed,
        "dropped": sum(event["kind"] == "given-up" and event.get("dropped", False) for event in log),
        "given_up": sum(event["kind"] == "given-up" and not event.get("dropped", False) for event in log),
        "resumed": sum(event["kind"] == "resumed" for event in log),
        "killed in a round": _resumed_in_a_round(log),
    }


def _resumed_in_a_round(log: list[dict[str, Any]]) -> int:
    """How often the edge server came back to a round that was open."""
    count, is_open = 0, False
    for event in log:
        is_open = event["kind"] == "opened" or (is_open and event["kind"] != "closed")
        count += event["kind"] == "resumed" and is_open
    return count
