"""How far the twin's predictions of time, energy and cost can be believed: what it predicted against what happened.

The 90 % interval of a prediction is the prediction plus the middle 90 % of the errors that the same device had before it, once
there are 19 of them: then exactly nine in ten would be covered if errors came in no order.
"""

import math
from bisect import insort
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedtwin.runs import Run
from fedtwin.service.predicted import Compared, compared, of_every_device
from fedtwin.service.telling import number_or_none

WHAT = ("time_s", "energy_j", "cost")
ERRORS_NEEDED, SHARE = 19, 0.9
TOO_UNLIKELY = 0.01
ROUNDING = 1e-9
"""Of what happened: errors below it are no errors, and in no order that says anything."""


class TrackRecord(NamedTuple):
    """Of one device and one quantity: errors (what happened minus what was predicted), and of intervals how many held."""

    errors: list[float]
    actual: list[float]
    intervals: int
    covered: int


def fidelity(run: Run, names: list[str]) -> dict[str, Any]:
    """Per device and for the fleet; null with the reason where the records cannot tell."""
    found = compared(run)
    tested = {what: _tested(found, what, len(names)) for what in WHAT}
    devices = []
    for device, name in enumerate(names):
        own = {what: tested[what][device] for what in WHAT}
        trusted, why = _trusted(own, found.reason)
        told = {what: _told([one], found.reason) for what, one in own.items()}
        devices.append({"device": device, "name": name, **told, "trusted": trusted, "why": why})
    fleet = {what: _told(tested[what], found.reason) for what in WHAT}
    return {"fleet": fleet, "devices": devices, "predicted": found.predicted, "notes": found.notes}


def trusted_of(report: dict[str, Any]) -> list[bool | None]:
    return [device["trusted"] for device in report["devices"]]


def ages_of(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """How old what the twin knows is, over the devices it was heard of."""
    found = {}
    for name, column in (("gain", columns["gain_age_s"]), ("cpu_hz", columns["cpu_age_s"])):
        known = [value for value in column if value is not None]
        p50, p95 = np.percentile(known, (50, 95)).tolist() if known else (None, None)
        found[name] = {"p50": p50, "p95": p95, "max": max(known, default=None), "heard": len(known), "of": len(column)}
    return found


def _tested(found: Compared, what: str, devices: int) -> list[TrackRecord]:
    """In the order of the decisions, device by device."""
    known = np.isfinite(found.predictions[what]) & np.isfinite(found.actual[what])
    predicted, actual = found.predictions[what][known], found.actual[what][known]
    places = of_every_device(found.device[known], devices)
    return [_walked(predicted[own].tolist(), actual[own].tolist()) for own in places]


def _walked(predicted: Sequence[float], actual: Sequence[float]) -> TrackRecord:
    errors: list[float] = []
    in_order: list[float] = []
    intervals = covered = 0
    for guess, happened in zip(predicted, actual, strict=True):
        error = happened - guess
        if len(in_order) >= ERRORS_NEEDED:
            out = int((1 - SHARE) / 2 * (len(in_order) + 1) + 1e-9)
            intervals += 1
            rounding = ROUNDING * abs(happened)
            covered += in_order[out - 1] - rounding <= error <= in_order[-out] + rounding
        errors.append(error)
        insort(in_order, error)
    return TrackRecord(errors, list(actual), intervals, covered)


def _told(tested: Sequence[TrackRecord], reason: str | None) -> dict[str, Any]:
    errors = np.array([error for one in tested for error in one.errors])
    intervals, covered = sum(one.intervals for one in tested), sum(one.covered for one in tested)
    why = reason
    if why is None and not len(errors):
        why = "No update has been predicted and then ended yet."
    elif why is None and not intervals:
        why = f"An interval needs {ERRORS_NEEDED} errors of the device before it."
    return {
        "count": len(errors),
        "bias": number_or_none(errors.mean()) if len(errors) else None,
        "rmse": number_or_none(math.sqrt(float((errors**2).mean()))) if len(errors) else None,
        "mean_abs": number_or_none(np.abs(errors).mean()) if len(errors) else None,
        "coverage90": covered / intervals if intervals else None,
        "intervals": intervals,
        "reason": why,
    }


def _trusted(own: dict[str, TrackRecord], reason: str | None) -> tuple[bool | None, str]:
    """Predictions fail where intervals hold less often than chance allows, or where errors exceed what is predicted."""
    if reason is not None:
        return None, reason
    if not own["time_s"].errors:
        return None, "No update of it has been predicted and then ended yet."
    for what, one in own.items():
        if one.intervals and _at_most(one.covered, one.intervals) < TOO_UNLIKELY:
            return False, f"{one.covered} of {one.intervals} intervals of {what} held, and nine in ten should."
        if len(one.errors) >= ERRORS_NEEDED and np.abs(one.errors).mean() > np.abs(one.actual).mean():
            return False, f"Its predictions of {what} are off by more than {what} itself, on average."
    return True, "Its intervals hold as often as they should."


def _at_most(covered: int, intervals: int) -> float:
    """How likely so few intervals hold, if each does with nine in ten: the binomial distribution."""
    logs = [math.lgamma(intervals + 1) - math.lgamma(k + 1) - math.lgamma(intervals - k + 1) for k in range(covered + 1)]
    return math.fsum(math.exp(log + k * math.log(SHARE) + (intervals - k) * math.log(1 - SHARE)) for k, log in enumerate(logs))
