"""What a person orders while a run goes on, and the rules that end it: events, so that a replay and a resume have them too."""

from pathlib import Path

import numpy as np
import pytest

from fedtwin import open_run
from fedtwin.config import config_hash, load_config
from fedtwin.errors import FedtwinError
from fedtwin.live.run import events, opening
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.run.settable import SETTABLE
from fedtwin.live.run.tables import write_records
from fedtwin.live.wire.protocol import Decline
from fedtwin.twin import total_queue
from tests.live.plant import ledger_of
from tests.live.run.reading_back import as_read, start_s
from tests.live.run.test_live_run import CODEC, TOKENS, begun, config_of, deliver, dispatch, next_question, weights
from tests.live.run.test_progress import replayed
from tests.live.run.test_trail import FEDBUFF


def resumed(live: LiveRun) -> LiveRun:
    """Killed, and started again."""
    live.close()
    again = opening.resume(live.folder)
    assert again.core.changed == live.core.changed and again.model.encoded == live.model.encoded
    return again


def same_when_replayed(live: LiveRun) -> bool:
    return bool(replayed(live).state.snapshot() == live.core.state.snapshot())


def play(live: LiveRun, uploads: int) -> None:
    for number in range(uploads):
        assert deliver(live, dispatch(live), weights(np.sin(number), number)) is None


def test_a_paused_run_hands_out_nothing_and_mixes_in_what_is_in_flight(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    sent = dispatch(live)
    asked = next_question(live)
    assert isinstance(asked, events.Asked)
    live.commit(asked)
    live.steer("pause")
    answer = live.core.answered(asked, Decline(reason="busy"), "", live.now_s())
    assert isinstance(answer, events.Declined) and answer.reason == "no task: the run is paused"
    live.commit(answer)
    assert live.core.next_ask(live.now_s()) is None and deliver(live, sent, weights(1.0)) is None
    live = resumed(live)
    assert live.core.paused and live.core.next_ask(live.now_s()) is None and not live.core.done
    live.steer("resume")
    assert same_when_replayed(live) and deliver(live, dispatch(live), weights(1.0)) is None
    live.close()


def test_a_drained_device_is_given_no_task_until_it_is_released(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    play(live, 3)
    live.steer("drain", name="a")
    live = resumed(live)
    devices = set()
    for _ in range(8):
        sent = dispatch(live)
        devices.add(live.core.names[sent.device])
        assert deliver(live, sent, weights(0.0)) is None
    assert devices == {"b", "c"}
    live.release("a", person="anna@desk")
    while live.core.names[(sent := dispatch(live)).device] != "a":
        assert deliver(live, sent, weights(0.0)) is None
    assert same_when_replayed(live)
    line = next(one for one in ledger_of(tmp_path / "run") if one["kind"] == "released")
    assert (line["by"], line["person"]) == ("operator", "anna@desk") and line["wall_s"] > 1e9
    live.close()


@pytest.mark.parametrize("limit", ["max_time_s", "max_energy_j"])
def test_a_limit_far_below_what_updates_take_is_refused(tmp_path: Path, limit: str) -> None:
    """1e-30 was taken, and the updates in flight were charged 1e29 each, which no later order could undo."""
    live = begun(tmp_path / "run")
    with pytest.raises(FedtwinError, match=rf"objective\.{limit} = 1e-30 is not allowed: it is .* no update has been seen yet"):
        live.change(f"objective.{limit}", 1e-30)
    play(live, 8)
    with pytest.raises(FedtwinError, match=rf"objective\.{limit} = 1e-30 is not allowed: updates take .* must be at least"):
        live.change(f"objective.{limit}", 1e-30)
    assert not live.core.changed
    live.change(f"objective.{limit}", 0.1)
    live.close()


def test_who_is_drained_or_the_last_one_ends_no_run(tmp_path: Path) -> None:
    live = begun(tmp_path / "run")
    for name in ("a", "b", "c"):
        live.steer("drain", name=name)
    event = live.core.next_ask(live.now_s())
    assert isinstance(event, events.Passed)
    live.commit(event)
    assert live.core.next_ask(live.now_s()) is None and not live.core.done
    live.release("b")
    assert live.core.names[dispatch(live).device] == "b"
    live.close()


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_finish_ends_the_run_when_the_tasks_in_flight_are_over(tmp_path: Path, mode: str) -> None:
    live = begun(tmp_path / "run", **{"run.mode": mode})
    if mode == "sync":
        opened = live.core.next_ask(live.now_s())
        assert isinstance(opened, events.Opened)
        live.commit(opened)
    sent = dispatch(live)
    live.steer("finish")
    assert not live.core.done
    live = resumed(live)
    filled = live.core.next_ask(live.now_s())
    assert isinstance(filled, events.Filled) if mode == "sync" else filled is None
    if filled is not None:
        live.commit(filled)
    assert deliver(live, sent, weights(1.0)) is None
    live.close_round()
    assert live.core.done and live.core.next_ask(live.now_s()) is None and live.core.version == 1
    live.commit(events.Stopped(at_s=live.now_s(), finished=True))
    summary = write_records(live.folder, live.core, live.model)
    live.close()
    assert summary["ended_by"] == "operator has said finish" == open_run(live.folder).summary["ended_by"]
    assert (live.folder / "model.safetensors").exists()


def test_a_run_that_never_started_can_be_finished(tmp_path: Path) -> None:
    live = opening.begin(tmp_path / "run", config_of(), "main", CODEC.encode(weights(0.0)))
    live.steer("finish")
    assert live.core.done
    live.commit(events.Stopped(at_s=live.now_s(), finished=True))
    write_records(live.folder, live.core, live.model)
    live.close()
    assert open_run(live.folder).summary["rounds"] == 0


def costs(live: LiveRun) -> list[float]:
    return [device.mean_cost for device in live.core.twin.devices]


def test_costs_are_what_they_would_have_been_with_the_new_weight_and_limits(tmp_path: Path) -> None:
    """Tasks that came to nothing are charged no less than one at both limits, with any weight."""
    changed = {"objective.energy_weight": 0.9, "objective.max_time_s": 0.15, "objective.max_energy_j": 0.4}
    both = []
    for name, given in (("before", changed), ("after", {})):
        live = begun(tmp_path / name, **given, **{"policy.name": "fairness"}, **{"live.limits_from_fleet": []})
        for number in range(12):
            sent = dispatch_loosely(live)
            if number % 5 == 4:
                live.commit(live.core.give_up(live.core.open[sent.token], sent.at_s + 0.01 * number, "by chance", "idle"))
            else:
                assert deliver(live, sent, weights(1.0)) is None
        for setting, value in {} if given else changed.items():
            live.change(setting, value)
        assert same_when_replayed(live)
        both.append(costs(live))
        assert open_run(live.folder).twin() == as_read(live.core.twin, start_s(live.folder))
        live.close()
    assert both[0] == pytest.approx(both[1], rel=1e-6) and min(both[0]) > 0


def dispatch_loosely(live: LiveRun) -> events.Dispatched:
    """Whatever the limits are."""
    asked = next_question(live)
    assert isinstance(asked, events.Asked)
    live.commit(asked)
    sent = events.Dispatched(
        at_s=live.now_s(), token=next(TOKENS), device=asked.device, round=asked.round, version=live.core.version, gain=1e-9,
        cpu_hz=2e9, power_w=0.1, compute_s=0.1, upload_s=0.1, compute_j=0.1, upload_j=0.01, cost=1.0, deadline_s=1e9,
        samples=50,
    )  # fmt: skip
    live.commit(sent)
    return sent


def test_rows_have_the_cost_of_their_time_and_the_hash_is_that_of_the_beginning(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"objective.energy_weight": 0.2})
    play(live, 6)
    live.change("objective.energy_weight", 0.8)
    play(live, 6)
    live.steer("finish")
    live.commit(events.Stopped(at_s=live.now_s(), finished=True))
    summary = write_records(live.folder, live.core, live.model)
    live.close()
    begun_with = load_config(live.folder / "config.toml")
    assert begun_with.objective.energy_weight == 0.2 and summary["config_hash"] == config_hash(begun_with)
    assert summary["changed"] == {"objective.energy_weight": 0.8}
    tasks = open_run(live.folder).tasks.to_pylist()
    weight = [0.2] * 6 + [0.8] * 6
    objective = begun_with.objective
    for task, energy_weight in zip(tasks, weight, strict=True):
        cost = (1 - energy_weight) * task["actual_s"] / objective.max_time_s
        cost += energy_weight * task["actual_j"] / objective.max_energy_j
        assert task["actual_cost"] == pytest.approx(cost)


def test_queues_grow_by_the_new_least_from_now_on(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"objective.min_mean_samples": 7.0})
    play(live, 9)
    next_ = live.core.round + 1
    before = total_queue(live.core.twin, next_)
    live.change("objective.min_mean_samples", 2.0)
    assert total_queue(live.core.twin, next_) == pytest.approx(before)
    assert total_queue(live.core.twin, next_ + 10) == pytest.approx(before + 10 * 2.0 * 3)
    assert live.core.twin.queue_sum == pytest.approx(sum(device.queue for device in live.core.twin.devices))
    early = open_run(live.folder).twin(round=3)
    assert early.min_mean_samples == 7.0 and open_run(live.folder).twin() == as_read(live.core.twin, start_s(live.folder))
    live.close()


def test_limits_that_are_set_are_told_with_every_question_and_not_taken_from_the_fleet_any_more(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"live.limits_from_fleet": ["max_time_s", "max_energy_j"]})
    assert live.core.asked_with(0) == {}
    live.change("objective.max_time_s", 0.25)
    live.change("objective.energy_weight", 0.7)
    assert live.core.asked_with(0) == {"max_time_s": 0.25, "energy_weight": 0.7}
    assert live.core.live.limits_from_fleet == ["max_energy_j"]
    assert live.core.terms_of(0).max_time_s == 0.25
    assert live.core.for_devices == live.config, "what devices join with is as it was"
    live.change("learning.learning_rate", 0.01)
    assert live.core.for_devices.learning is not None and live.core.for_devices.learning.learning_rate == 0.01
    assert live.core.for_devices.objective == live.config.objective
    resumed(live).close()


def test_devices_hear_of_other_rounds_where_their_rate_falls_over_these(tmp_path: Path) -> None:
    for name, settings, rounds in (
        ("constant", {}, None),
        ("given", {"learning.rate_schedule": "cosine", "learning.rate_rounds": 70}, None),
        ("falling", {"learning.rate_schedule": "cosine"}, 90),
    ):
        live = begun(tmp_path / name, **settings)
        live.change("run.rounds", 90)
        assert live.core.for_devices.run.rounds == (rounds or live.config.run.rounds) and live.core.config.run.rounds == 90
        live = resumed(live)
        assert live.core.for_devices.run.rounds == (rounds or live.config.run.rounds)
        live.close()


@pytest.mark.parametrize("rule", [{}, FEDBUFF], ids=["fedasync", "fedbuff"])
def test_uploads_are_mixed_by_the_new_rate_and_the_model_comes_back(tmp_path: Path, rule: dict[str, object]) -> None:
    live = begun(tmp_path / "run", **rule)
    play(live, 4)
    for rate in (0.25, 0.75):
        live.change("learning.mixing", rate)
        live = resumed(live)
        play(live, 1)
        live = resumed(live)
    if not rule:
        before = live.model.weights.floats.copy()
        assert deliver(live, dispatch(live), weights(2.0)) is None
        assert live.model.weights.floats == pytest.approx(0.25 * before + 0.75 * 2.0)
    live.close()


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("fleet.channels", 5, "fleet.channels cannot be changed while the run goes on: what can is run.rounds, policy.v"),
        ("nonsense", 5, "nonsense cannot be changed while the run goes on"),
        ("run.rounds", 0, "run.rounds = 0 is not allowed"),
        ("run.rounds", "many", "run.rounds = 'many' is not allowed: it must be a number"),
        ("objective.energy_weight", 1.5, "objective.energy_weight = 1.5 is not allowed"),
        ("policy.v", float("nan"), "policy.v = nan is not allowed"),
    ],
)
def test_what_cannot_be_set_is_refused_by_name(tmp_path: Path, setting: str, value: object, sentence: str) -> None:
    live = begun(tmp_path / "run")
    with pytest.raises(FedtwinError) as caught:
        live.change(setting, value)
    assert str(caught.value).startswith(sentence) and not live.core.changed
    live.close()


@pytest.mark.parametrize("staleness", ["polynomial", "hinge", "constant"])
def test_every_setting_of_the_table_can_be_set_where_it_changes_something(tmp_path: Path, staleness: str) -> None:
    live = begun(tmp_path / "run", **{"learning.staleness": staleness})
    play(live, 3)
    of_the_others = {"learning.staleness_exponent": "polynomial", "learning.hinge_a": "hinge", "learning.hinge_b": "hinge"}
    for setting in SETTABLE:
        section, _, key = setting.partition(".")
        if of_the_others.get(setting, staleness) != staleness:
            whose = f"of staleness = {of_the_others[setting]!r}, not of {staleness!r}"
            with pytest.raises(FedtwinError, match=rf"^{setting} = 1 would change nothing: it is {whose}\.$"):
                live.change(setting, 1)
            assert setting not in live.core.changed
        else:
            live.change(setting, 1)
            assert getattr(getattr(live.core.config, section), key) == 1
    assert same_when_replayed(live)
    resumed(live).close()


def test_a_rate_that_the_rule_does_not_read_is_refused(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"learning.aggregation": "window"})
    with pytest.raises(
        FedtwinError, match=r"^learning\.mixing = 0\.5 would change nothing: it is not of aggregation = 'window'"
    ):
        live.change("learning.mixing", 0.5)
    live.close()


def test_fewer_rounds_end_the_run_and_more_let_it_go_on(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"fleet.channels": 1})
    play(live, 6)
    live.change("run.rounds", 5)
    assert live.core.done
    live.change("run.rounds", 8)
    assert not live.core.done
    play(live, 3)
    assert live.core.done
    live.close()


def measured(live: LiveRun, *metrics: float) -> None:
    for metric in metrics:
        at_s = live.now_s()
        event = events.Measured(
            at_s=at_s, round=1, version=1, model_at_s=at_s, energy_j=0.0, test_loss=1.0, test_accuracy=metric
        )
        live.commit(event)


def test_stop_rules(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"live.stop_after_s": 100.0, "live.stop_at_metric": 0.9, "live.stop_without_progress": 3})
    start_s = live.core.state.started_s
    assert start_s is not None
    measured(live, 0.5, 0.6, 0.55, 0.6, float("nan"))

    def rule(at_s: float) -> str | None:
        end = live.core.end_by_rule(at_s)
        return None if end is None else end.reason

    assert rule(live.now_s()) == "live.stop_without_progress = 3", "as good is no better"
    measured(live, 0.7)
    assert rule(live.now_s()) is None and rule(start_s + 99.9) is None
    assert rule(start_s + 100.0) == "live.stop_after_s = 100.0"
    measured(live, 0.9)
    assert rule(live.now_s()) == "live.stop_at_metric = 0.9"
    live = resumed(live)
    end = live.core.end_by_rule(live.now_s())
    assert end is not None
    live.commit(end)
    assert live.core.done and live.core.end_by_rule(live.now_s()) is None
    live.close()


def test_a_metric_of_which_less_is_better(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"learning.metric_direction": "lower", "live.stop_at_metric": 0.1})
    measured(live, 0.5, 0.2)
    assert live.core.end_by_rule(live.now_s()) is None and live.core.judged.best == 0.2
    measured(live, 0.05)
    assert live.core.end_by_rule(live.now_s()) is not None
    live.close()
