"""Other settings have the effect they should have; what cannot be asked is one sentence."""

from pathlib import Path
from typing import Any

import pytest

from fedtwin import FedtwinError, Run, whatif
from fedtwin.formulas.cost import cost
from fedtwin.twin import total_queue
from fedtwin.whatif import Answer
from fedtwin.whatif.changing import changed
from fedtwin.whatif.fork import Fork, fork_of
from fedtwin.whatif.playing import ready
from fedtwin.whatif.points import points_of
from fedtwin.whatif.readable import play_readable
from fedtwin.whatif.worlds import true_world
from tests.whatif.runs import played


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(tmp_path_factory.mktemp("whatif") / "run")


def ask(run: Run, **more: Any) -> Answer:
    return whatif(run, **{"at": 80, "rounds": 60, "worlds": 8, "look_back": False, "engine": "readable", **more})


def surely(found: Any) -> int:
    """The sign of a difference whose interval does not hold 0; 0 otherwise."""
    return 1 if found.low > 0.0 else -1 if found.high < 0.0 else 0


@pytest.mark.parametrize(
    ("settings", "signs"),
    [
        ({"policy.power": "max"}, {"mean_cost": 1, "mean_time_s": -1, "mean_energy_j": 1}),
        ({"policy.name": "fairness"}, {"mean_cost": 1}),
        ({"objective.energy_weight": 0.9}, {"mean_time_s": 1, "mean_energy_j": -1}),
        ({"objective.energy_weight": 0.1}, {"mean_time_s": -1, "mean_energy_j": 1}),
        ({"objective.max_time_s": 0.6}, {"mean_time_s": -1}),
        ({"objective.max_energy_j": 0.3}, {"mean_energy_j": -1}),
        ({"objective.min_mean_samples": 9.0}, {"total_queue": 1}),
        ({"policy.bonus_scale": 0.0, "policy.v": 1e9}, {"total_queue": 1, "mean_cost": -1}),
        ({"radio.max_power_w": 0.05}, {"mean_energy_j": -1}),
    ],
)
def test_a_setting_has_its_effect(run: Run, settings: dict[str, Any], signs: dict[str, int]) -> None:
    difference = ask(run, set=settings).difference
    assert {number: surely(getattr(difference, number)) for number in signs} == signs, difference


def test_more_channels_are_quicker(run: Run) -> None:
    few, many = (ask(run, set={"fleet.channels": count}).what_if.curves["clock_s"] for count in (1, 6))
    as_is = ask(run).as_is.curves["clock_s"]
    assert many[-1] - many[0] < as_is[-1] - as_is[0] < few[-1] - few[0]


def test_nothing_asked_changes_nothing(run: Run) -> None:
    answer = ask(run)
    assert answer.as_is == answer.what_if and answer.difference.mean_cost.low == answer.difference.mean_cost.high == 0.0
    same = ask(run, set={"policy.v": run.config.policy.v, "policy.name": "cu-ucb"})
    assert same.what_if == answer.as_is


def devices_of(fork: Fork, run: Run, rounds: int, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Who is asked, in the run's own world."""
    from fedtwin.sim.engine import Engine

    asked: set[int] = set()
    usual = Engine.ask

    def watched(self: Engine, device: int, round_: int) -> Any:
        asked.add(device)
        return usual(self, device, round_)

    monkeypatch.setattr(Engine, "ask", watched)
    fork = ready(fork, rounds)
    play_readable(fork, true_world(fork, run), points_of(fork, rounds))
    return asked


def test_who_is_lost_is_never_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = fork_of(run, 80)
    in_flight = begun.flights[0].device
    lost = {in_flight, (in_flight + 1) % 8, 7}
    assert devices_of(changed(begun, {}, (), 0), run, 40, monkeypatch) == set(range(8))
    assert devices_of(changed(begun, {}, sorted(lost), 0), run, 40, monkeypatch) == set(range(8)) - lost


def test_lost_devices_leave_their_queues_and_samples_behind(run: Run) -> None:
    difference = ask(run, without=["device-0", 1, "2"], rounds=150).difference
    assert surely(difference.total_queue) == -1 and surely(difference.least_mean_samples) == 1


def test_fewer_devices_than_channels_use_fewer_channels(run: Run) -> None:
    answer = ask(run, without=[0, 1, 2, 3, 4, 5])
    assert "Only 2 devices can be asked, so 2 of the 3 channels are used." in answer.notes
    assert answer.what_if.mean_cost.mean is not None


def test_devices_that_join_share_the_work(run: Run) -> None:
    answer = ask(run, add=8, rounds=150)
    assert surely(answer.difference.least_mean_samples) == -1
    assert answer.what_if.least_mean_samples.mean is not None and answer.what_if.least_mean_samples.mean > 0.0


def test_queues_grow_by_the_new_least_from_the_next_round_on(run: Run) -> None:
    begun = fork_of(run, 80)
    other = changed(begun, {"objective.min_mean_samples": 5.0}, (), 0)
    before, after = total_queue(begun.twin, 80), total_queue(other.twin, 80)
    assert after == pytest.approx(before) and total_queue(other.twin, 81) == pytest.approx(before + 8 * 5.0)


def test_costs_that_were_learned_are_expressed_by_the_new_weights(run: Run) -> None:
    other = changed(fork_of(run, 80), {"objective.energy_weight": 0.9, "objective.max_time_s": 2.0}, (), 0)
    for device, known in enumerate(other.twin.devices):
        rows = [row for row in run.rounds.to_pylist() if row["round"] < 80 and row["device"] == device and not row["declined"]]
        charged = [cost(other.terms_of(device), r["compute_s"] + r["upload_s"], r["compute_j"] + r["upload_j"]) for r in rows]
        assert known.observations == len(rows) and known.mean_cost == pytest.approx(sum(charged) / len(charged))
    assert other.terms_of(0).max_time_s == 2.0


def test_limits_of_a_devices_own_stay_its_own(tmp_path: Path) -> None:
    run = played(tmp_path / "run", run__rounds=60, fleet__max_energy_j=[0.5, 1.5])
    other = changed(fork_of(run, 40), {"objective.max_energy_j": 0.9, "objective.max_time_s": 0.8}, (), 0)
    assert other.notes == ("8 of 8 devices have a max_energy_j of their own, and keep it.",)
    for device in range(8):
        assert other.terms_of(device).max_time_s == 0.8
        assert other.terms_of(device).max_energy_j == run.devices["max_energy_j"][device].as_py()


def test_with_fewer_channels_uploads_come_in_before_anybody_is_asked(run: Run) -> None:
    answer = whatif(run, at=80, rounds=30, true_world=True, set={"fleet.channels": 1}, engine="readable")
    fork = fork_of(run, 80)
    assert len(fork.flights) == 2
    assert answer.what_if.curves["clock_s"][0] >= max(one.at_s for one in fork.flights)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"set": {"run.seed": 3}},
            r"run.seed is not for a what-if: what can be set is policy.name, policy.v, .* fleet.channels",
        ),
        ({"set": {"policy.v": -1}}, r"policy.v = -1 is not allowed"),
        ({"set": {"policy.name": "nobody"}}, r"policy.name = 'nobody' is not allowed: choose one of cu-ucb"),
        ({"set": {"policy.name": "Sy-fairness"}}, r"'Sy-fairness' is for run.mode = 'sync', and a what-if keeps .* 'async'"),
        ({"set": {"policy.name": "mine:POLICY"}}, r"policy.name = 'mine:POLICY' is code of your own, .* say trust=True"),
        ({"set": {"policy.settings.x": 1}}, r"policy.settings"),
        ({"set": {"fleet.channels": 9}}, r"channels = 9 is more than devices = 8"),
        ({"set": "policy.v=1"}, r"set = 'policy.v=1' is a str: a dictionary of settings is needed"),
        ({"without": [8]}, r"without = 8: there is no such device, there are 0 to 7 \(device-0, device-1, device-2, …\)"),
        ({"without": ["device-9"]}, r"without = 'device-9': there is no such device"),
        ({"without": "device-1"}, r"without = 'device-1' is not allowed: it must be a list of devices"),
        ({"without": list(range(8))}, r"Nobody is left to be asked"),
        ({"add": -1}, r"add = -1 is not allowed: it must be a number of devices, from 0"),
        ({"add": 1, "true_world": True}, r"true_world = True knows nothing of devices that are not there: add = 1"),
        ({"rounds": 0}, r"rounds = 0 is not allowed: it must be a whole number from 1"),
        ({"worlds": 1}, r"worlds = 1 is not allowed: it must be a whole number from 2"),
        ({"seed": -1}, r"seed = -1 is not allowed"),
        ({"engine": "quick"}, r"engine = 'quick' is not allowed"),
        ({"trust": "yes"}, r"trust = 'yes' is a str: True or False is needed"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(run: Run, asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FedtwinError, match=sentence):
        ask(run, **asked)


def test_what_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"is not the folder of a run"):
        whatif(tmp_path)
