import math
from collections import defaultdict
from typing import Any

import pytest

from fedtwin.config import load_config
from fedtwin.sim import simulate


def sync_rows(**changes: Any) -> tuple[dict[int, list[dict[str, Any]]], Any]:
    result = simulate(load_config(overrides={"policy.name": "Sy-fairness", **changes}))
    by_round: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in result.rounds.to_pylist():
        by_round[row["round"]].append(row)
    return by_round, result


def test_a_round_is_m_devices_and_waits_for_the_slowest() -> None:
    by_round, result = sync_rows(**{"run.rounds": 300})
    clock_s = 0.0
    assert list(by_round) == list(range(1, 21))
    for rows in by_round.values():
        assert len({row["device"] for row in rows}) == 15
        assert [row["clock_s"] for row in rows] == pytest.approx([clock_s] * 15)
        slowest_s = max(row["compute_s"] + row["upload_s"] for row in rows)
        for row in rows:
            assert row["cost"] == pytest.approx(0.5 * slowest_s + 0.5 * (row["compute_j"] + row["upload_j"]) / 1.2)
            assert row["arrived"] is None and row["staleness"] is None and row["power_w"] == 1.0
        clock_s += slowest_s
    assert result.summary.virtual_time_s == pytest.approx(clock_s)
    assert result.summary.mean_time_s == pytest.approx(clock_s / 20)
    assert result.summary.rounds == 300


def test_selections_are_counted_to_the_last_one() -> None:
    by_round, result = sync_rows(**{"run.rounds": 100})
    assert [len(rows) for rows in by_round.values()] == [15] * 6 + [10]
    assert result.summary.rounds == 100


def test_everybody_takes_part_equally_often() -> None:
    by_round, _ = sync_rows(**{"run.rounds": 300})
    counts: dict[int, int] = defaultdict(int)
    for rows in by_round.values():
        for row in rows:
            counts[row["device"]] += 1
    assert set(counts.values()) == {10}


def test_the_queue_grows_once_a_round_and_rows_show_it_before_the_update() -> None:
    by_round, result = sync_rows(**{"run.rounds": 300, "objective.min_mean_samples": 30.0})
    samples = result.devices["samples"].to_pylist()
    queues = [0.0] * 30
    for rows in by_round.values():
        for row in rows:
            assert row["queue"] == pytest.approx(queues[row["device"]])
            assert row["total_queue"] == pytest.approx(math.fsum(queues))
        chosen = {row["device"] for row in rows}
        queues = [max(queues[n] + 30.0 - (samples[n] if n in chosen else 0), 0.0) for n in range(30)]
    assert result.summary.total_queue == pytest.approx(math.fsum(queues))


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
def test_declines_shrink_a_round_and_an_empty_one_costs_the_deadline() -> None:
    changes = {"policy.power": "optimal", "run.rounds": 30, "objective.max_time_s": 0.05}
    by_round, result = sync_rows(**changes)
    assert result.summary.rounds == 0 and result.summary.passed_rounds == 30
    assert result.summary.virtual_time_s == pytest.approx(30 * 0.05)
    assert all(len(rows) == 30 for rows in by_round.values()), "everybody was asked, once"


def test_cu_ucb_can_be_run_synchronously_and_learns() -> None:
    fair = simulate(load_config(overrides={"policy.name": "fairness", "run.mode": "sync", "policy.power": "optimal"})).summary
    learned = simulate(
        load_config(overrides={"policy.name": "cu-ucb", "run.mode": "sync", "policy.v": 1e7, "policy.bonus_scale": 0.05})
    ).summary
    assert learned.mean_cost is not None and fair.mean_cost is not None and learned.mean_cost < fair.mean_cost
