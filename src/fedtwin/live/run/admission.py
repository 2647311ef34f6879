"""Whether an upload is mixed in, and what is believed of what its device says about it: upload and state in, verdict out.

Nothing changes in here. What follows from a verdict is up to ``LiveRun``.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedtwin.config import Config, LiveConfig
from fedtwin.config.fleet_csv import read_fleet_csv
from fedtwin.formulas.cost import cost, within
from fedtwin.formulas.terms import Terms, terms_of
from fedtwin.learning.layout import Floats, Weights
from fedtwin.live.run import events
from fedtwin.live.run.core import TOO_LATE, Core, OpenTask
from fedtwin.live.run.model import LiveModel
from fedtwin.live.run.tasks import SUPERSEDED
from fedtwin.live.wire.protocol import Done
from fedtwin.live.wire.tensors import UnfitError

AGREES = 0.01
CLOCK_SHARE = 0.05
TWINS = "are there two devices of this name?"
LEAST_MEAN_W, MOST_MEAN_W = 1e-4, 1e4
MOST_STEPS = 10**9
PIECE_VALUES = 65_536


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

    @property
    def charged(self) -> dict[str, float]:
        """What the device is charged, by the names of ``events.Applied``."""
        return {name: getattr(self, name) for name in ("compute_s", "upload_s", "compute_j", "upload_j", "cost")}


@dataclass(frozen=True)
class Admitted:
    """An upload that is to be mixed in: with its task, the model it started from, and what is believed of its report."""

    task: OpenTask
    late: bool
    start: Weights
    weights: Weights
    elapsed_s: float
    believed: Believed


@dataclass(frozen=True)
class NotAdmitted:
    """Why it is not; ``attack`` where no honest device would send it, ``task`` where one ends with it.

    ``dropped``: it is only too late for its synchronous round.
    """

    reason: str
    attack: bool = False
    task: OpenTask | None = None
    dropped: bool = False


@dataclass(frozen=True)
class Found:
    """The task a result belongs to, or why it belongs to none; ``attack`` where no honest device would send it."""

    task: OpenTask | None
    late: bool = False
    reason: str | None = None
    attack: bool = False


def admit(
    core: Core, model: LiveModel, name: str, done: Done, body: bytes | memoryview | None, *, arrived_s: float, now_s: float
) -> Admitted | NotAdmitted:
    """The verdict on an upload that has come whole, or not (``body`` is None)."""
    found = find_task(core, name, done.token, done.version)
    if found.task is None or found.reason is not None:
        return NotAdmitted(found.reason or "", found.attack, found.task)
    if core.is_quarantined(name):
        return NotAdmitted("quarantined: the device failed a check before", task=found.task)
    if body is None:
        return NotAdmitted("missing: the result came without its upload", task=found.task)
    if bad := bad_claim(core, name, done, core.config, found.task.sent):
        return NotAdmitted(bad, attack=True)
    if len(body) != done.model_bytes:
        return NotAdmitted(f"size: {len(body)} bytes came, {done.model_bytes} were announced", attack=True)
    start = model.start_of(found.task.sent.version)
    try:
        weights = model.uploaded(body, model.weights if start is None else start)
    except UnfitError as error:
        return NotAdmitted(str(error), attack=True)
    if start is None and model.sends_changes:  # of which nothing more can be said
        return NotAdmitted(model.why_no_start(found.task.sent.version), task=found.task)
    if bad := bad_weights(model.weights, weights, core.live):
        return NotAdmitted(bad, attack=True)
    if start is None:
        return NotAdmitted(model.why_no_start(found.task.sent.version), task=found.task)
    sent_s = found.task.sent.at_s
    elapsed_s = (arrived_s if arrived_s > sent_s else now_s) - sent_s  # a clock that was set back buys nothing
    believed = believe(done, elapsed_s, core.terms_of(found.task.sent.device), core.live)
    if believed.compute_s + believed.upload_s > core.timeout_s:
        return NotAdmitted(TOO_LATE, task=found.task, dropped=True)
    if excess := core.excess_of(found.task, late=found.late):
        return NotAdmitted(excess, task=found.task)
    return Admitted(found.task, found.late, start, weights, elapsed_s, believed)


def admit_bytes(core: Core, model: LiveModel, name: str, token: str, size: int) -> NotAdmitted | None:
    """Why the bytes of an upload need not even be kept until their result comes, or None."""
    found = find_task(core, name, token, None)
    if found.reason is not None:
        return NotAdmitted(found.reason, found.attack)
    if size > model.most_upload_bytes:
        return NotAdmitted(f"size: {size} bytes, and an upload has {model.upload_bytes}", attack=True)
    return None


def admit_failure(core: Core, name: str, token: str) -> OpenTask | NotAdmitted:
    """The task that a device says has failed."""
    found = find_task(core, name, token, None)
    if found.task is None or found.late:
        return NotAdmitted(found.reason or "late: the task had been given up", found.attack)
    return found.task


def find_task(core: Core, name: str, token: str, version: int | None) -> Found:
    """Tokens are one-shot, and bound to device, task and model version."""
    late = token in core.given_up
    task = core.given_up[token] if late else core.open.get(token)
    if task is None:
        how = core.closed.get(token)
        if how == SUPERSEDED:
            return Found(None, reason="late: a newer task of the device was given up since")
        return Found(None, reason=f"duplicate: the task was {how} before" if how else "unassigned: no such task")
    if core.number_of(name) != task.sent.device:
        return Found(None, reason="foreign token: the task is another device's", attack=True)
    if version is not None and version != task.sent.version:
        return Found(None, reason=f"version: the task has {task.sent.version}, the result {version}", attack=True)
    if late and (core.sync or core.live.late == "refuse"):
        return Found(None, reason="late: the task had been given up")
    if core.version - task.sent.version > core.live.max_staleness:
        return Found(task, late, reason=f"stale: {core.version - task.sent.version} versions behind")
    return Found(task, late)


def most_samples(config: Config) -> int:
    """The largest D_n a device may announce: a larger one would buy preference, since queues drain by it (Section IV-A)."""
    if config.fleet.file is None:
        return config.fleet.samples_max
    return max(row.samples for row in read_fleet_csv(Path(config.fleet.file)))


def most_of_own(config: Config) -> dict[str, float]:
    """The largest that a device may announce of its own, of all that would buy it something: power, or a lower cost.

    The cost is by T_max and E_max, so a device with larger ones would look cheap.
    """
    terms = terms_of(config)
    most = {name: float(getattr(terms, name)) for name in ("max_power_w", "max_time_s", "max_energy_j")}
    most["samples_spread"] = 0.0
    rows = [] if config.fleet.file is None else read_fleet_csv(Path(config.fleet.file))
    for name in most:
        drawn = getattr(config.fleet, name)
        named = [row.own[name] for row in rows if name in row.own]
        most[name] = drawn[1] if drawn is not None else max(named, default=most[name])
    return most


def bad_claim(core: Core, name: str, done: Done, config: Config, sent: events.Dispatched | None = None) -> str | None:
    """Numbers no device of this fleet, or not this one, can have."""
    member = core.members[name]
    samples = member.joined.samples if sent is None else core.samples_of(sent)
    if done.samples != samples:
        return f"samples: {done.samples}, and {samples} were announced: {TWINS}"
    if not config.compute.cpu_hz_floor <= done.cpu_hz <= 10.0 * config.compute.cpu_hz_max:
        return f"range: cpu_hz = {done.cpu_hz:g}"
    if not within(done.power_w, member.terms(core.terms).max_power_w):
        return f"range: power_w = {done.power_w:g} is over max_power_w"
    for what, energy, time_s in (("compute", done.compute_j, done.compute_s), ("upload", done.upload_j, done.upload_s)):
        if energy.source == "measured" and not LEAST_MEAN_W <= energy.value / max(time_s.value, 1e-6) <= MOST_MEAN_W:
            return f"range: {what}_j = {energy.value:g} J in {time_s.value:g} s"
    return None


def bad_weights(model: Weights, upload: Weights, live: LiveConfig) -> str | None:
    """Values that must not be mixed in: not finite, or too far away. What is not finite is at no distance that is allowed."""
    size, allowed = _distance(upload.floats, model.floats), live.max_change
    if not (math.isfinite(size) and size <= allowed):
        if not np.isfinite(upload.floats).all():
            return "not finite: the upload has NaN or infinite values"
        allowed *= max(_distance(model.floats), 1.0)
        if not (math.isfinite(size) and size <= allowed):
            return f"norm: the change of {size:.3g} is over {allowed:.3g}"
    if (upload.counters < 0).any():
        return "range: a counter is negative"
    if (upload.counters - model.counters > MOST_STEPS).any():  # or it would overflow on the next device, and that be blamed
        return f"range: a counter grew by more than {MOST_STEPS}"
    return None


def _distance(one: Floats, other: Floats | None = None) -> float:
    """‖one − other‖₂, or ‖one‖₂: a piece at a time, which stays in the core's cache, and on this core alone: the linear
    algebra library would take all of them for a millisecond.
    """
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is over any bound
        for begin in range(0, len(one), PIECE_VALUES):
            piece = one[begin : begin + PIECE_VALUES]
            if other is not None:
                piece = piece - other[begin : begin + PIECE_VALUES]
            total += float(np.einsum("i,i->", piece, piece))
    return math.sqrt(total)


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
