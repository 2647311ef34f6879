import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtwin.config import build_config, load_config
from fedtwin.errors import FedtwinWarning
from fedtwin.registry import POLICIES
from fedtwin.sim import Result, simulate


def no_more_channels_than_devices(changes: dict[str, Any]) -> dict[str, Any]:
    return {**changes, "fleet.channels": min(changes["fleet.channels"], changes["fleet.devices"])}


SMALL = st.fixed_dictionaries(
    {
        "policy.name": st.sampled_from(list(POLICIES)),
        "policy.feedback": st.sampled_from(["on-selection", "on-arrival"]),
        "policy.power": st.sampled_from(["scheme", "optimal", "max"]),
        "run.mode": st.sampled_from(["async", "sync"]),
        "run.rounds": st.integers(1, 60),
        "run.seed": st.integers(0, 2**63 - 1),
        "fleet.devices": st.integers(1, 12),
        "fleet.channels": st.integers(1, 12),
        "objective.max_time_s": st.sampled_from([0.3, 0.5, 0.7, 1.0]),
        "objective.min_mean_samples": st.sampled_from([0.0, 1.0, 3.3]),
    }
).map(no_more_channels_than_devices)


def rows_of(result: Result) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = result.rounds.to_pylist()
    return rows


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
@settings(max_examples=150)
@given(changes=SMALL)
def test_whatever_the_settings_the_records_hold_together(changes: dict[str, Any]) -> None:
    result = simulate(build_config({}, changes), trace=True)
    rows, summary = rows_of(result), result.summary
    taken = [row for row in rows if not row["declined"]]
    assert len(taken) == summary.rounds <= changes["run.rounds"]
    assert len(rows) - len(taken) == summary.declines
    assert [row["clock_s"] for row in rows] == sorted(row["clock_s"] for row in rows)
    assert all(row["available"][row["device"]] for row in rows)
    assert len({(row["round"], row["device"]) for row in rows}) == len(rows), "nobody is asked twice in a round"
    assert all((row["cost"] is None) == row["declined"] == (row["power_w"] == 0) for row in rows)
    assert all(math.isfinite(row["total_queue"]) and row["queue"] >= 0 for row in rows)
    if changes["run.mode"] == "async":
        assert summary.passed_rounds == changes["run.rounds"] - len(taken)
        check_the_channels(rows, changes["fleet.channels"])


def check_the_channels(rows: list[dict[str, Any]], channels: int) -> None:
    """Replays who is in flight: never more than M, nobody chosen twice at once, nobody arrives who did not leave."""
    away = {n for n, idle in enumerate(rows[0]["available"]) if not idle}
    if rows[0]["arrived"] is not None:
        assert len(away) <= channels - 1
    seen_round = rows[0]["round"]
    for row in rows:
        if row["round"] != seen_round and row["arrived"] is not None:
            assert row["arrived"] in away
            away.remove(row["arrived"])
        seen_round = row["round"]
        if not row["declined"]:
            assert row["device"] not in away
            away.add(row["device"])
        assert len(away) <= channels


def test_arrivals_come_when_their_time_is_over() -> None:
    """Every upload arrives exactly compute_s + upload_s after it was assigned, in order of (time, device)."""
    rows = [row for row in rows_of(simulate(load_config(overrides={"run.rounds": 500}))) if not row["declined"]]
    due: dict[int, float] = {}
    for row in rows:
        if row["arrived"] in due:
            assert row["clock_s"] == due.pop(row["arrived"])
        assert all(clock_s >= row["clock_s"] for clock_s in due.values())
        due[row["device"]] = row["clock_s"] + row["compute_s"] + row["upload_s"]


def test_staleness_is_the_aggregations_since_the_download() -> None:
    rows = rows_of(simulate(load_config(overrides={"run.rounds": 400})))
    downloaded: dict[int, int] = {}
    version = 0
    for row in [row for row in rows if not row["declined"]]:
        if row["arrived"] in downloaded:
            assert row["staleness"] == version - downloaded[row["arrived"]]
        version += 1
        downloaded[row["device"]] = version
    assert version == 400


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
def test_a_fleet_that_always_declines_passes_every_round() -> None:
    result = simulate(load_config(overrides={"objective.max_time_s": 0.05, "run.rounds": 7}))
    summary = result.summary
    assert (summary.rounds, summary.passed_rounds, summary.declines) == (0, 7, 7 * 30)
    assert summary.virtual_time_s == pytest.approx(7 * 0.05)
    assert summary.mean_cost is None and summary.total_queue == pytest.approx(30 * 7 * 1.0)
    assert {row["decline_reason"] for row in rows_of(result)} == {"compute-time"}


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
def test_a_channel_left_empty_is_filled_at_the_next_arrival() -> None:
    """With many declines some rounds pass; later rounds at the same clock fill the channels again."""
    changes = {"objective.max_time_s": 0.45, "run.rounds": 600, "fleet.devices": 6, "fleet.channels": 5}
    result = simulate(load_config(overrides=changes))
    rows = rows_of(result)
    assert result.summary.passed_rounds > 0
    assert any(row["arrived"] is None for row in rows), "a round that no arrival opened"


def test_learning_on_arrival_decides_exactly_as_learning_on_selection() -> None:
    """Whoever may be chosen is idle, so its last cost has arrived: only the indices of devices in flight differ."""
    changes = {"run.rounds": 2000, "policy.bonus_scale": 0.1}
    at_once = simulate(load_config(overrides=changes), trace=True).rounds
    later = simulate(load_config(overrides={**changes, "policy.feedback": "on-arrival"}), trace=True).rounds
    assert later.drop_columns(["indices"]).equals(at_once.drop_columns(["indices"]))
    assert later["indices"] != at_once["indices"], "a device in flight is known only on selection"


def test_an_impossible_c1_is_a_warning_with_the_largest_value() -> None:
    with pytest.warns(FedtwinWarning, match=r"min_mean_samples = 3 cannot be met .* might be is 2\.83"):
        simulate(load_config(overrides={"objective.min_mean_samples": 3.0, "run.rounds": 5}))


@pytest.mark.parametrize("energy_weight", [0.0, 1.0])
def test_the_ends_of_the_energy_weight_are_legal(energy_weight: float) -> None:
    rows = rows_of(simulate(load_config(overrides={"objective.energy_weight": energy_weight, "run.rounds": 200})))
    taken = [row for row in rows if not row["declined"]]
    if energy_weight == 1.0:
        assert all(row["compute_s"] + row["upload_s"] == pytest.approx(1.0) for row in taken), "as slow as C6 allows"
    else:
        assert sum(row["power_w"] == 1.0 for row in taken) > 100, "as fast as C2 and C5 allow"
