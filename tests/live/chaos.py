"""Kills edge server, broker and devices at random moments, brings them back, and checks the ledger by its own arithmetic.

python -m tests.live.chaos SEED KILLS ROUNDS FOLDER
"""

import contextlib
import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from fedtwin.live import LocalFleet
from fedtwin.live.run.ledger import LEDGER_NAME, lines_after
from fedtwin.live.run.model import digest_of
from fedtwin.live.run.past import beginning_of, pasts_of, settings_of
from tests.live.adding_device import SAMPLES

Ledger = list[dict[str, Any]]
ENTRIES = 64
MIN_MEAN_SAMPLES = 1.0
SETTINGS = {
    "live.heartbeat_s": 0.3,
    "live.offline_after_s": 3.0,
    "live.ask_timeout_s": 0.5,
    "live.deadline_margin_s": 1.5,
    "live.max_staleness": 100000,
    "live.max_change": 1000,
    "objective.min_mean_samples": MIN_MEAN_SAMPLES,
}


def copy_without_broker(folder: Path, into: Path) -> None:
    shutil.copytree(folder, into, dirs_exist_ok=True, ignore=shutil.ignore_patterns("broker"))


def change_ledger(folder: Path, change: Callable[[Ledger], None]) -> None:
    path = folder / "run" / "ledger.jsonl"
    ledger = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    change(ledger)
    path.write_text("".join(json.dumps(event) + "\n" for event in ledger), encoding="utf-8")


def places(ledger: Ledger, kind: str) -> list[int]:
    return [place for place, event in enumerate(ledger) if event["kind"] == kind]


def queue_lost(ledger: Ledger) -> None:
    place = next(place for place in places(ledger, "asked") if ledger[place]["queue"] > 0)
    ledger[place]["queue"] = 0.0


class Fleet:
    """The processes of a run that is being tortured."""

    def __init__(self, folder: Path, rounds: int, devices: int, seed: int, **settings: Any) -> None:
        self.folder, self.devices = folder, devices
        self.run, self.rounds = folder / "run", rounds
        save_file({"marks": np.zeros(ENTRIES, np.float32)}, folder / "model.safetensors")
        self.chance = random.Random(seed)
        self.local = LocalFleet(folder, stop_s=0.0)
        self.kills: dict[str, int] = {}
        self.settings = {"fleet.devices": devices, "fleet.channels": max(2, devices - 1), **SETTINGS, **settings}
        self._start_edge()
        self.url = self.local.url()
        for number in range(devices):
            self._start_device(f"device-{number}")

    def _start_edge(self) -> None:
        """It goes on with the run where there is one."""
        model = self.folder / "model.safetensors"
        named = ("--initial", model, "--rounds", self.rounds, "--no-evaluator", "--log-format", "json")
        self.local.edge(*named, settings=self.settings)

    def _start_device(self, name: str) -> None:
        self.local.start(name, [sys.executable, "-m", "tests.live.adding_device", name, self.url, "main"])

    def kill(self, target: str) -> None:
        self.kills[target] = self.kills.get(target, 0) + 1
        self.local.kill(target)

    def revive(self) -> None:
        for name, process in list(self.local.processes.items()):
            if process.poll() is None:
                continue
            if name != "edge":
                self._start_device(name)
            elif not (self.run / "summary.json").exists():
                self._start_edge()

    def finished(self) -> bool:
        return (self.run / "summary.json").exists() and self.local.processes["edge"].poll() is not None

    def torture(self, kills: int, limit_s: float) -> None:
        """Kills, then lets the run come to its end."""
        deadline = time.monotonic() + limit_s
        targets = ["edge", "edge", "broker", "broker", *(f"device-{k}" for k in range(self.devices))]
        for _ in range(kills):
            time.sleep(self.chance.uniform(0.02, 0.9))
            if self.finished():
                break
            self.kill(self.chance.choice(targets))
            if self.chance.random() < 0.3:
                time.sleep(self.chance.uniform(0.0, 0.4))
            self.revive()
        while not self.finished():
            assert time.monotonic() < deadline, f"the run does not come to an end: {self.tail('edge')}"
            time.sleep(0.1)
            self.revive()

    def wait_for_uploads(self, more: int) -> None:
        """Until so many more are in the ledger."""
        path, deadline = self.run / "ledger.jsonl", time.monotonic() + 120.0
        wanted: int | None = None
        while wanted is None or path.read_bytes().count(b'"kind":"applied"') < wanted:
            if wanted is None and path.exists():
                wanted = more + path.read_bytes().count(b'"kind":"applied"')
            assert time.monotonic() < deadline, f"no uploads come: {self.tail('edge')}"
            time.sleep(0.02)

    def wait_for_an_open_round(self) -> None:
        """A synchronous one, in which somebody has a task."""
        path, deadline = self.run / "ledger.jsonl", time.monotonic() + 120.0
        while True:
            since = path.read_bytes().rpartition(b'"kind":"opened"')[2]
            if b'"kind":"dispatched"' in since and b'"kind":"closed"' not in since:
                return
            assert time.monotonic() < deadline, f"no round is opened: {self.tail('edge')}"
            time.sleep(0.002)

    def tail(self, name: str) -> str:
        return self.local.log(name)[-3000:]

    def close(self) -> None:
        self.local.stop()


Vector = Any
Mix = Callable[[Vector, Vector, Vector, int], Vector]
"""By hand: the next model, from the one before, the one an upload started from, the upload, and its staleness in changes."""


def fedasync_by_hand(model: Vector, start: Vector, upload: Vector, staleness: int) -> Vector:  # noqa: ARG001
    weight = 0.6 * (staleness + 1.0) ** -0.5
    return ((1.0 - weight) * model + weight * upload).astype(np.float32)


def check(folder: Path, mix: Mix = fedasync_by_hand) -> dict[str, int]:
    """Every promise about a finished run, recomputed from its ledger and the devices' logs; raises where one is broken."""
    lines = lines_after(folder / "run" / LEDGER_NAME, 0)
    plain, served = (folder / "run" / name for name in ("model-plain.safetensors", "model.safetensors"))
    model = plain if plain.exists() else served
    found = check_log([json.loads(line) for line in lines], model, uploaded_in(folder), mix)
    summary = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["uploads_applied"] == found["applied"] == summary["model_version"]
    assert summary["rounds"] == found.pop("counted")
    assert summary["rounds_given_up"] == found["in_vain"], "a round that came to nothing was counted wrongly"
    return found


def check_stopped(run: Path, uploaded: set[str]) -> dict[str, int]:
    """The same of a run that was stopped before its end, and the replay of its ledger: from every snapshot, and of all."""
    ledger = run / LEDGER_NAME
    log = [json.loads(line) for line in lines_after(ledger, 0)]
    newest = max((run / "models").glob("model-*.safetensors"), key=lambda path: int(path.stem.rpartition("-")[2]))
    found = check_log(log, newest, uploaded)
    last = next(event for event in reversed(log) if event["kind"] == "applied")
    assert digest_of(newest.read_bytes()) == last["model_sha256"], "the newest model is not the one of the ledger"
    assert not [event for event in log if event["kind"] == "quarantined"], "an honest device was locked out"
    states = []
    for past in pasts_of(run, settings_of(run, beginning_of(run))):
        past.replay()
        states.append(past.state.snapshot())
    assert all(state == states[-1] for state in states), "a snapshot and the lines after it give another state than all lines"
    assert states[-1]["progress"]["given_up"] == found["in_vain"], "a round that came to nothing was counted wrongly"
    return {**found, "lines": len(log), "snapshots": len(states) - 1}


def check_log(log: Ledger, model: Path, uploaded: set[str], mix: Mix = fedasync_by_hand) -> dict[str, int]:
    """The same from the lines of a ledger alone, the newest model, and the tokens of what the broker has acknowledged."""
    sent: dict[str, dict[str, Any]] = {}
    models = [np.zeros(ENTRIES, np.float32)]
    applied: set[str] = set()
    queues: dict[int, tuple[float, int]] = {}
    counted = changes = 0
    last_at_s, last_round, devices = 0.0, 0, 0
    open_rounds: set[int] = set()
    for event in log:
        kind = event["kind"]
        assert event["at_s"] >= last_at_s, "the clock went back"
        last_at_s = event["at_s"]
        if kind == "started":
            devices = len(event["names"])
        elif kind == "joined" and devices:  # later than the others: its queue begins now
            queues[devices] = 0.0, max(last_round, 1)
            devices += 1
        elif kind == "opened":
            assert event["round"] == last_round + 1, "a round was skipped or came again"
            last_round = event["round"]
            open_rounds.add(last_round)
        elif kind == "passed":
            open_rounds.discard(event["round"])
        elif kind == "asked" and event["round"] > 0:
            assert event["round"] in open_rounds, "a round was skipped or came again"
            queue, since = queues.get(event["device"], (0.0, 1))
            assert event["queue"] == queue + (event["round"] - since) * MIN_MEAN_SAMPLES, "a queue was lost"
        elif kind == "dispatched":
            assert event["token"] not in sent, "a token was used twice"
            assert event["version"] == len(models) - 1, "an old model was handed out"
            sent[event["token"]] = {**event, "changes": changes}
            open_rounds.discard(event["round"])
            if event["round"] > 0:
                counted += 1
                queue, since = queues.get(event["device"], (0.0, 1))
                now = queue + (event["round"] - since) * MIN_MEAN_SAMPLES
                queues[event["device"]] = max(now + MIN_MEAN_SAMPLES - SAMPLES, 0.0), event["round"] + 1
        elif kind == "applied":
            token = event["token"]
            assert token not in applied, "an upload was applied twice"
            task = sent[token]
            assert task["device"] == event["device"]
            assert event["version"] == len(models), "the version is not the next one"
            assert event["staleness"] == len(models) - 1 - task["version"]
            upload = models[task["version"]].copy()
            upload[task["round"] % ENTRIES] += np.float32(1.0)
            models.append(mix(models[-1], models[task["version"]], upload, changes - task["changes"]))
            assert event["changed"] == (models[-1] is not models[-2]), "a version says wrongly that it is new"
            changes += event["changed"]
            applied.add(token)
    final = load_file(model)["marks"]
    np.testing.assert_allclose(final, models[-1], rtol=1e-4, atol=1e-5)
    accounted = applied | {event["token"] for event in log if event["kind"] in ("refused",) and "token" in event}
    assert uploaded <= accounted, f"lost after they were acknowledged: {sorted(uploaded - accounted)}"
    return {
        "counted": counted,
        "tasks": len(sent),
        "applied": len(applied),
        "late": sum(event["kind"] == "applied" and event["late"] for event in log),
        "given_up": sum(event["kind"] == "given-up" for event in log),
        "refused": sum(event["kind"] == "refused" for event in log),
        "resumed": sum(event["kind"] == "resumed" for event in log),
        "uploaded": len(uploaded),
        "in_vain": rounds_in_vain(log),
    }


def rounds_in_vain(log: Ledger) -> int:
    """Rounds that do not count: their task was given up, and its upload never came; or nobody who was asked gave an answer."""
    round_of_task = {event["token"]: event["round"] for event in log if event["kind"] == "dispatched"}
    given_up = {event["token"] for event in log if event["kind"] == "given-up" and not event.get("dropped", False)}
    applied = {event["token"] for event in log if event["kind"] == "applied"}
    lost = sum(bool(round_of_task[token] > 0) for token in given_up - applied)
    asked_in: dict[int, int] = {}
    declined: set[int] = set()
    unanswered = 0
    for event in log:
        if event["kind"] == "asked":
            asked_in[event["device"]] = event["round"]
        elif event["kind"] == "declined" and not event.get("offline", False):
            declined.add(asked_in[event["device"]])
        elif event["kind"] == "passed" and event["round"] > 0:
            unanswered += event["round"] not in declined
    return lost + unanswered


def uploaded_in(folder: Path) -> set[str]:
    """Tokens whose result a device knows to be on the broker's disk."""
    tokens = set()
    for path in folder.glob("device-*.log"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if entry.get("message") == "uploaded":
                    tokens.add(entry["token"])
    return tokens


def main() -> None:
    seed, kills, rounds = (int(text) for text in sys.argv[1:4])
    folder = Path(sys.argv[4])
    folder.mkdir(parents=True)
    fleet = Fleet(folder, rounds, 5, seed)
    begun = time.monotonic()
    try:
        fleet.torture(kills, 600.0)
    finally:
        fleet.close()
    print(fleet.kills, check(folder), f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
