"""What an upload must pass before it is mixed in, and what is believed of what a device says about it. Pure functions."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedtwin.config import Config, LiveConfig
from fedtwin.config.fleet_csv import read_fleet_csv
from fedtwin.formulas.cost import cost, within
from fedtwin.formulas.terms import Terms
from fedtwin.learning.layout import Floats, Weights
from fedtwin.live.run.core import Core, OpenTask
from fedtwin.live.wire.protocol import Done

AGREES = 0.01
CLOCK_SHARE = 0.05
LEAST_MEAN_W, MOST_MEAN_W = 1e-4, 1e4
MOST_STEPS = 10**9


@dataclass(frozen=True)
class Found:
    """The task a result belongs to, or why it belongs to none; ``attack`` where no honest device would send it."""

    task: OpenTask | None
    late: bool = False
    reason: str | None = None
    attack: bool = False


def find_task(core: Core, name: str, token: str, version: int | None) -> Found:
    """Tokens are one-shot, and bound to device, task and model version."""
    late = token in core.given_up
    task = core.given_up[token] if late else core.open.get(token)
    if task is None:
        how = core.closed.get(token)
        return Found(None, reason=f"duplicate: the task was {how} before" if how else "unassigned: no such task")
    if core.number_of(name) != task.sent.device:
        return Found(None, reason="foreign token: the task is another device's", attack=True)
    if version is not None and version != task.sent.version:
        return Found(None, reason=f"version: the task has {task.sent.version}, the result {version}", attack=True)
    if late and core.live.late == "refuse":
        return Found(None, reason="late: the task had been given up")
    if core.version - task.sent.version > core.live.max_staleness:
        return Found(task, late, reason=f"stale: {core.version - task.sent.version} versions behind")
    return Found(task, late)


def most_samples(config: Config) -> int:
    """The largest D_n a device may announce: a larger one would buy preference, since queues drain by it (Section IV-A)."""
    if config.fleet.file is None:
        return config.fleet.samples_max
    return max(row.samples for row in read_fleet_csv(Path(config.fleet.file)))


def bad_claim(core: Core, name: str, done: Done, config: Config) -> str | None:
    """Numbers no device of this fleet can have."""
    if done.samples != core.members[name].joined.samples:
        return f"samples: {done.samples}, and {core.members[name].joined.samples} were announced"
    if not config.compute.cpu_hz_floor <= done.cpu_hz <= 10.0 * config.compute.cpu_hz_max:
        return f"range: cpu_hz = {done.cpu_hz:g}"
    if not within(done.power_w, config.radio.max_power_w):
        return f"range: power_w = {done.power_w:g} is over max_power_w"
    for what, energy, time_s in (("compute", done.compute_j, done.compute_s), ("upload", done.upload_j, done.upload_s)):
        if energy.source == "measured" and not LEAST_MEAN_W <= energy.value / max(time_s.value, 1e-6) <= MOST_MEAN_W:
            return f"range: {what}_j = {energy.value:g} J in {time_s.value:g} s"
    return None


def bad_weights(model: Weights, upload: Weights, live: LiveConfig) -> str | None:
    """Values that must not be mixed in: not finite, or too far away."""
    if not math.isfinite(_norm(upload.floats)) and not np.isfinite(upload.floats).all():
        return "not finite: the upload has NaN or infinite values"
    with np.errstate(over="ignore"):  # what overflows is over any bound
        size = _norm(upload.floats - model.floats)
    allowed = live.max_change * max(_norm(model.floats), 1.0)
    if not (size <= allowed and math.isfinite(size)):
        return f"norm: the change of {size:.3g} is over {allowed:.3g}"
    if (upload.counters < 0).any():
        return "range: a counter is negative"
    if (upload.counters - model.counters > MOST_STEPS).any():  # or it would overflow on the next device, and that be blamed
        return f"range: a counter grew by more than {MOST_STEPS}"
    return None


def _norm(values: Floats) -> float:
    """‖w‖₂ on this core alone: the linear algebra library would take all of them for a millisecond."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(float(np.einsum("i,i->", values, values)))


@dataclass(frozen=True)
class Believed:
    """What an update took, as far as the server believes it."""

    compute_s: float
    upload_s: float
    compute_j: float
    upload_j: float
    cost: float
    reported_s: float
    agrees: bool


def believe(done: Done, elapsed_s: float, terms: Terms, live: LiveConfig) -> Believed:
    """A time that disagrees with the server's clock is replaced by the server's, an energy that disagrees with its model by
    the model's: E_com = p T_com, and E_cmp = ζ f³ T_cmp, which is ζ D c f² of Section III-C without the cycles.
    """
    compute_s, upload_s = done.compute_s.value, done.upload_s.value
    reported_s = compute_s + upload_s
    allowed_s = live.clock_tolerance_s / live.time_scale + CLOCK_SHARE * elapsed_s
    agrees = abs(elapsed_s - reported_s) <= allowed_s
    if not agrees:
        compute_s = min(compute_s, elapsed_s)
        upload_s = elapsed_s - compute_s
    compute_j = _energy(done.compute_j.value, done.compute_j.source, terms.capacitance * done.cpu_hz**3 * compute_s)
    upload_j = _energy(done.upload_j.value, done.upload_j.source, done.power_w * upload_s)
    total = cost(terms, compute_s + upload_s, compute_j + upload_j)
    return Believed(compute_s, upload_s, compute_j, upload_j, total, reported_s, agrees)


def _energy(reported_j: float, source: str, modelled_j: float) -> float:
    if source == "measured" or abs(reported_j - modelled_j) <= AGREES * modelled_j:
        return reported_j
    return modelled_j
