"""The track record of the twin's predictions: errors as they were, intervals that hold as often as they say, and marks."""

from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin import Run, load_config, simulate
from fedtwin.formulas.power import optimal_plan
from fedtwin.formulas.terms import terms_of
from fedtwin.service.fidelity import ERRORS_NEEDED, TrackRecord, _trusted, _walked
from tests.service.serving import serving
from tests.service.test_runs import get


def test_errors_are_of_predictions_by_what_the_twin_knew(client: httpx.Client, run: Run) -> None:
    """Told by the twin itself, round by round."""
    told, terms = get(client, "/api/runs/factory/fidelity"), terms_of(run.config)
    errors = []
    for row in run.rounds.to_pylist():
        known = run.twin(round=row["round"]).devices[row["device"]]
        if row["device"] == 4 and not row["declined"] and known.gain is not None:
            plan = optimal_plan(terms, known.gain.value, known.cpu_hz_sum / known.cpus, known.samples.value)
            if plan.feasible:
                errors.append(row["compute_s"] + row["upload_s"] - plan.compute_s - plan.upload_s)
    record = told["devices"][4]["time_s"]
    assert record["count"] == len(errors) > 5
    assert record["bias"] == pytest.approx(np.mean(errors)) and record["rmse"] == pytest.approx(
        np.sqrt(np.mean(np.square(errors)))
    )
    assert told["fleet"]["cost"]["count"] == sum(device["cost"]["count"] for device in told["devices"])
    assert told["ages"]["gain"]["p50"] <= told["ages"]["gain"]["p95"] <= told["ages"]["gain"]["max"]


@given(st.integers(0, 2**32))
def test_intervals_of_errors_in_no_order_hold_nine_times_in_ten(seed: int) -> None:
    chance = np.random.default_rng(seed)
    walks = [_walked([0.0] * 60, chance.standard_cauchy(60).tolist()) for _ in range(50)]
    covered, intervals = sum(one.covered for one in walks), sum(one.intervals for one in walks)
    assert intervals == 50 * (60 - ERRORS_NEEDED) and 0.86 < covered / intervals < 0.97


def test_what_is_predicted_to_the_last_digits_is_no_failure() -> None:
    """Energies that are all but the same: what is left is rounding."""
    exact = [0.03 * (1 + 1e-15 * (7 * k % 11)) for k in range(400)]
    record = _walked([0.03] * 400, exact)
    assert record.covered == record.intervals > 300
    assert _trusted({"time_s": record, "energy_j": record, "cost": record}, None)[0] is True


def test_who_drifts_away_is_marked_and_who_is_only_noisy_is_not() -> None:
    chance = np.random.default_rng(1)
    noisy = _walked([1.0] * 200, (1.0 + 0.3 * chance.standard_normal(200)).tolist())
    drifting = _walked([1.0] * 200, (1.0 + np.arange(200) / 50).tolist())
    wild = TrackRecord([3.0] * 30, [1.0] * 30, 0, 0)
    assert _trusted({"time_s": noisy, "energy_j": noisy, "cost": noisy}, None)[0] is True
    trusted, why = _trusted({"time_s": noisy, "energy_j": drifting, "cost": noisy}, None)
    assert trusted is False and "energy_j" in why and "nine in ten" in why
    assert _trusted({"time_s": wild, "energy_j": noisy, "cost": noisy}, None)[0] is False
    assert _trusted({"time_s": TrackRecord([], [], 0, 0), "energy_j": noisy, "cost": noisy}, None)[0] is None


def test_what_the_records_cannot_tell_is_null_with_the_reason(tmp_path: Path) -> None:
    config = load_config(overrides={"run.rounds": 1, "fleet.devices": 3, "fleet.channels": 1, "run.engine": "readable"})
    simulate(config, out=tmp_path / "short")
    with serving(tmp_path / "short") as client:
        told = get(client, "/api/runs/short/fidelity")
    for device in told["devices"]:
        assert device["time_s"]["coverage90"] is None and device["time_s"]["reason"]
    assert told["fleet"]["time_s"]["rmse"] is None or told["fleet"]["time_s"]["count"] > 0
