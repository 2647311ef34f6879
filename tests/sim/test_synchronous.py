import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from fedtwin.config import config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.learning.learner import Learner
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


def test_a_round_ends_at_the_timeout_and_drops_who_is_late() -> None:
    by_round, result = sync_rows(**{"run.rounds": 300, "run.sync_timeout_s": 0.6})
    clock_s, wasted_j = 0.0, 0.0
    for rows in by_round.values():
        took_s = [row["compute_s"] + row["upload_s"] for row in rows]
        lasts_s = min(max(took_s), 0.6)
        assert [row["clock_s"] for row in rows] == pytest.approx([clock_s] * 15)
        assert [row["dropped"] for row in rows] == [took > 0.6 for took in took_s]
        for row in rows:
            energy_j = row["compute_j"] + row["upload_j"]
            assert row["cost"] == pytest.approx(0.5 * lasts_s + 0.5 * energy_j / 1.2)
            if row["dropped"]:
                wasted_j += energy_j
                assert energy_j == pytest.approx(row["compute_j"] + row["power_w"] * (0.6 - row["compute_s"]))
        clock_s += lasts_s
    assert result.summary.virtual_time_s == pytest.approx(clock_s)
    assert result.summary.wasted_energy_j == pytest.approx(wasted_j)
    assert 0 < result.summary.drops < 300 and result.summary.rounds == 300


def test_a_selection_that_is_dropped_counts_for_the_queues_and_not_for_c1() -> None:
    by_round, result = sync_rows(**{"run.rounds": 300, "run.sync_timeout_s": 0.6, "objective.min_mean_samples": 30.0})
    samples = result.devices["samples"].to_pylist()
    queues, in_time = [0.0] * 30, [0.0] * 30
    for rows in by_round.values():
        for row in rows:
            assert row["queue"] == pytest.approx(queues[row["device"]])
            in_time[row["device"]] += 0.0 if row["dropped"] else row["samples"]
        chosen = {row["device"] for row in rows}
        queues = [max(queues[n] + 30.0 - (samples[n] if n in chosen else 0), 0.0) for n in range(30)]
    assert result.summary.total_queue == pytest.approx(math.fsum(queues))
    assert result.summary.least_mean_samples == pytest.approx(min(in_time) / len(by_round))


@pytest.mark.filterwarnings("ignore:Every upload was dropped")
def test_a_timeout_that_nobody_meets_ends_every_round() -> None:
    by_round, result = sync_rows(**{"run.rounds": 60, "run.sync_timeout_s": 0.01})
    assert result.summary.drops == result.summary.rounds == 60 and len(by_round) == 4
    assert result.summary.virtual_time_s == pytest.approx(4 * 0.01)
    assert result.summary.least_mean_samples == 0.0
    rows = [row for rows in by_round.values() for row in rows]
    assert all(row["upload_j"] == 0.0 for row in rows)
    full_j = {row["device"]: 2e-28 * row["samples"] * 5e6 * row["cpu_hz"] ** 2 for row in rows[:15]}
    assert [row["compute_j"] for row in rows[:15]] == pytest.approx(
        [full_j[row["device"]] * 0.01 / row["compute_s"] for row in rows[:15]]
    )


def test_a_timeout_that_all_meet_changes_no_bit() -> None:
    without, with_one = (simulate(load_config(overrides={"policy.name": "Sy-fairness", **more})) for more in ({}, LONG))
    assert with_one.rounds.drop_columns(["dropped"]).equals(without.rounds)
    assert with_one.summary.drops == 0 and without.summary.drops is None
    assert {**with_one.summary.as_dict(), **without.summary.as_dict()} == with_one.summary.as_dict()


LONG = {"run.sync_timeout_s": 1e6}


@pytest.mark.filterwarnings("ignore::fedtwin.errors.FedtwinWarning")
def test_an_empty_round_takes_no_longer_than_the_timeout() -> None:
    changes = {"policy.power": "optimal", "run.rounds": 30, "objective.max_time_s": 0.05, "run.sync_timeout_s": 0.02}
    assert sync_rows(**changes)[1].summary.virtual_time_s == pytest.approx(30 * 0.02)


def test_a_timeout_is_for_synchronous_rounds_and_has_a_name_of_its_own() -> None:
    with pytest.raises(FedtwinError, match=r"\[run\] sync_timeout_s = 0\.6 ends synchronous rounds: mode must be 'sync'"):
        load_config(overrides={"run.sync_timeout_s": 0.6})
    with pytest.raises(FedtwinError, match=r"run\.sync_timeout_s = 0 is not allowed"):
        load_config(overrides={"run.mode": "sync", "run.sync_timeout_s": 0})
    plain, none, some = (
        load_config(overrides={"policy.name": "Sy-fairness", **more})
        for more in ({}, {"run.sync_timeout_s": None}, {"run.sync_timeout_s": 0.6})
    )
    assert config_hash(plain) == config_hash(none) == "57e0c4b7e09901ef" != config_hash(some)


LEARNING = {
    "learning.dataset": "digits",
    "learning.executor": "serial",
    "learning.evaluate_every_s": 0.5,
    "fleet.devices": 8,
    "fleet.channels": 4,
    "run.rounds": 24,
}


def test_only_who_is_in_time_is_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed: list[tuple[int, int]] = []
    uploaded = Learner.uploaded

    def noted(self: Learner, device: int, round_: int, clock_s: float) -> float | None:
        mixed.append((round_, device))
        return uploaded(self, device, round_, clock_s)

    monkeypatch.setattr(Learner, "uploaded", noted)
    by_round, result = sync_rows(**LEARNING, **{"run.sync_timeout_s": 0.55})
    rows = [row for rows in by_round.values() for row in rows]
    assert mixed == [(row["round"], row["device"]) for row in rows if not row["dropped"]]
    assert 0 < len(mixed) < 24
    assert all((row["train_loss"] is None) == row["dropped"] for row in rows)
    assert result.evaluations[-1].energy_j == pytest.approx(sum(row["compute_j"] + row["upload_j"] for row in rows))
    assert result.evaluations[-1].cost_spent == pytest.approx(sum(row["cost"] for row in rows))


@pytest.mark.filterwarnings("ignore:Every upload was dropped")
def test_a_model_of_which_all_uploads_are_dropped_stays_what_it_was() -> None:
    _, result = sync_rows(**LEARNING, **{"run.sync_timeout_s": 0.01})
    _, begun = sync_rows(**{**LEARNING, "run.rounds": 1, "run.sync_timeout_s": 0.01})
    assert all(np.array_equal(result.weights[name], begun.weights[name]) for name in begun.weights)
    assert {one.test_loss for one in result.evaluations} == {begun.evaluations[0].test_loss}
