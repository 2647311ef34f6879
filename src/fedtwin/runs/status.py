"""What a person sees of the run in a folder: a live run from its ledger while it goes on, a simulation from its records."""

import math
from pathlib import Path
from typing import Any

from fedtwin.live.run.core import Core
from fedtwin.live.run.ledger import LEDGER_NAME, DamageError
from fedtwin.live.views.sight import Sight
from fedtwin.live.views.status import status_of
from fedtwin.records.files import LOCK_NAME
from fedtwin.records.lock import is_held
from fedtwin.records.summary import judged_by
from fedtwin.runs.live import LiveRunFolder, has_lost_lines, last_line_age_s, ledger_files
from fedtwin.runs.replay import Replay
from fedtwin.runs.run import Run, open_run
from fedtwin.twin import device_to_dict


class Watched:
    """``look`` again and again: of a live run only what is new is read; one that was repaired meanwhile is opened anew."""

    def __init__(self, folder: str | Path) -> None:
        self._folder, self._files, self._damaged = Path(folder), dict[str, tuple[int, int]](), False
        self._open()

    def _open(self) -> None:
        self._run = open_run(self._folder)
        if isinstance(self._run, LiveRunFolder):
            self._replay = Replay(self._run.config, self._run.path / LEDGER_NAME)
            self._sight = Sight(Core(self._run.config, self._replay.state))

    def look(self) -> dict[str, Any]:
        """The run and its devices, as ``status_of`` gives them; ``DamageError`` until a damaged run is repaired."""
        files = ledger_files(self._folder)
        if self._damaged or has_lost_lines(self._files, files):
            self._open()
        self._files, self._damaged = files, True
        try:
            found = self._found()
        except DamageError:  # unless it was repaired, and has grown again since
            self._open()
            found = self._found()
        self._damaged = False
        return found

    def _found(self) -> dict[str, Any]:
        if not isinstance(self._run, LiveRunFolder):
            return _simulated(open_run(self._run.path))
        for event in self._replay.read_on():
            self._sight.happened(event)
        state = self._replay.state
        serves = is_held(self._run.path / LOCK_NAME) and not state.finished
        now_s = state.last_at_s + (last_line_age_s(self._run.path) / state.live.time_scale if serves else 0.0)
        run = self._sight.run(now_s)
        run["stopped"] = run["stopped"] or not (serves or state.finished)
        return status_of(run, self._sight.devices(now_s), now_s=now_s)


def _simulated(run: Run) -> dict[str, Any]:
    """A simulation has no clock but its own, and nobody in it is out of reach."""
    summary, twin = run.summary, run.twin()
    now_s = summary["virtual_time_s"]
    value = summary.get("test_metric", summary.get("test_accuracy"))
    metric = None
    if value is not None and run.evaluations.num_rows:
        last = run.evaluations.slice(run.evaluations.num_rows - 1).to_pylist()[0]
        name = judged_by(run.config).get("metric", "metric")
        metric = {"name": name, "value": value, "version": last.get("version"), "at_s": last["clock_s"]}
    facts = {
        "name": run.path.name,
        "time_scale": 1.0,
        "policy": run.config.policy.name,
        "mode": run.config.run.mode,
        "started": True,
        "finished": run.finished,
        "stopped": False,
        "joined": len(twin.devices),
        "round": summary["rounds"],
        "queue_round": run.moment().queue_round,
        "rounds": run.config.run.rounds,
        "version": twin.model_version,
        "uploads": twin.model_version,
        "in_flight": sum(device.status == "in-flight" for device in twin.devices),
        "energy_j": math.fsum(device.energy_sum_j for device in twin.devices),
        "min_mean_samples": twin.min_mean_samples,
        "recent_s": [],
        "still_since_s": None,
        "warn_after_s": math.inf,
        "reasons": [],
        "trouble": None,
        "metric": metric,
    }
    devices = {
        f"device {number}": {**device_to_dict(device), "mean_cost": device.mean_cost}
        for number, device in enumerate(twin.devices)
    }
    return status_of(facts, devices, now_s=now_s)
