"""The same question has the same answer; its intervals hold what then happens in nine cases of ten; live runs are asked too."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from benchmarks.whatif_coverage import CASES, fork
from hypothesis import given, settings
from hypothesis import strategies as st

import fedtwin
from fedtwin import FedtwinError, Run, open_run, whatif
from fedtwin.config import build_config
from fedtwin.live.run import events, opening
from fedtwin.live.wire.protocol import Accept
from fedtwin.runs.live import LiveRunFolder
from tests.live.run.test_live_run import CODEC, begun, deliver, dispatch, next_question, weights
from tests.live.run.test_replay import Driver
from tests.live.run.test_round import SYNC, opened
from tests.whatif.runs import SMALL, last_round, played


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(tmp_path_factory.mktemp("whatif") / "run")


def test_the_same_question_has_the_same_answer(run: Run) -> None:
    question: dict[str, Any] = {"at": 60, "rounds": 30, "worlds": 5, "set": {"policy.v": 1e3}, "add": 2, "without": [1]}
    first = whatif(run, **question)
    assert whatif(run.path, **question) == first
    other = whatif(run, **question, seed=1)
    assert other.as_is != first.as_is and other.notes[1:] == first.notes[1:]


def test_as_is_does_not_depend_on_what_is_asked(run: Run) -> None:
    first = whatif(run, at=60, rounds=30, worlds=5, set={"policy.name": "random"}, look_back=False)
    second = whatif(run, at=60, rounds=30, worlds=5, without=[3], add=3, look_back=False)
    assert first.as_is == second.as_is


def test_the_answer_is_plain_json_with_what_was_agreed(run: Run) -> None:
    answer = whatif(run, at=60, rounds=150, worlds=4, set={"policy.v": 1e3})
    found = json.loads(json.dumps(answer.as_dict(), allow_nan=False))
    assert {"run", "at_round", "rounds", "worlds", "as_is", "what_if", "notes"} <= set(found)
    assert (found["run"], found["at_round"], found["rounds"], found["worlds"]) == (str(run.path), 60, 150, 4)
    for future in (found["as_is"], found["what_if"]):
        for name in ("mean_cost", "mean_time_s", "mean_energy_j", "least_mean_samples", "total_queue"):
            assert set(future[name]) == {"mean", "low", "high"} and future[name]["low"] <= future[name]["high"]
        curves = future["curves"]
        assert len(curves["clock_s"]) == 100 and curves["clock_s"] == sorted(curves["clock_s"])
        assert all(len(curves[name][side]) == 100 for name in ("mean_cost", "total_queue") for side in ("mean", "low", "high"))
        assert curves["mean_cost"]["high"][-1] == future["mean_cost"]["high"]


def test_the_notes_say_what_the_worlds_rest_on_and_what_the_question_was_worth(run: Run) -> None:
    notes = whatif(run, at=101, rounds=50, worlds=19).notes
    told = sum(row["round"] < 101 for row in run.rounds.to_pylist()) + run.start.num_rows
    assert notes[1] == f"Worlds are sampled from what was heard before round 101: {told} answers of 8 devices."
    costs = [row["cost"] for row in run.rounds.to_pylist() if 51 <= row["round"] < 101 and not row["declined"]]
    assert notes[0].startswith("Asked at round 51 about the next 50 rounds, it would have said ")
    assert f"which came to {sum(costs) / len(costs):.4f}: " in notes[0]
    earlier = whatif(run, at=51, rounds=50, worlds=19, look_back=False).as_is.mean_cost
    assert f"said {earlier.low:.4f} to {earlier.high:.4f} for" in notes[0]
    assert not any("Asked" in note for note in whatif(run, at=101, rounds=50, worlds=2, look_back=False).notes)


def test_fedtwin_whatif_is_the_function_and_the_room(run: Run) -> None:
    import fedtwin.whatif as room

    assert room.whatif(run, at=60, rounds=5, worlds=2) == fedtwin.whatif(run, at=60, rounds=5, worlds=2)


@pytest.mark.slow
def test_intervals_hold_what_then_happens() -> None:
    """Few, small and quick: half as wide, they would hold some 24 of 40."""
    found = [fork(CASES["few"], number, worlds=19, engine="readable", latest=60, ahead=(30, 60)) for number in range(40)]
    assert 33 <= sum(one.inside[0] for one in found) <= 39


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cu-ucb", "fairness", "sync"])
def test_of_four_hundred_forks_85_to_95_in_a_hundred_hold(name: str) -> None:
    found = [fork(CASES[name], number, worlds=100) for number in range(400)]
    assert 340 <= sum(one.inside[0] for one in found) <= 380


def test_devices_that_do_not_answer_are_reckoned_with_and_no_code_of_a_world_is_run(tmp_path: Path) -> None:
    (tmp_path / "asleep.py").write_text(
        "from pathlib import Path\n"
        "from fedtwin.draws import uniform, word\n"
        "from fedtwin.world.parts import Availability\n"
        f"with Path({str(tmp_path / 'imports')!r}).open('a') as file:\n"
        "    file.write('again\\n')\n"
        "def available(at, settings):\n"
        "    return uniform(word(at.stream, at.round)) > 0.4\n"
        "AVAILABILITY = Availability(available)\n"
    )
    config = build_config({"code": {"folder": str(tmp_path)}}, {**SMALL, "world.availability": "asleep:AVAILABILITY"})
    fedtwin.simulate(config, out=tmp_path / "run")
    before = (tmp_path / "imports").read_text()
    run = open_run(tmp_path / "run")
    for name in [name for name in sys.modules if name.endswith("asleep")]:
        del sys.modules[name]
    answer = whatif(run, at=80, rounds=30, worlds=19, look_back=False)
    silent = sum(row["round"] < 80 and row["decline_reason"] == "unavailable" for row in run.rounds.to_pylist())
    assert any(note.startswith(f"In {silent} of ") for note in answer.notes) and silent > 30
    assert (tmp_path / "imports").read_text() == before
    with pytest.raises(FedtwinError, match=r"world.availability = 'asleep:AVAILABILITY' is code of your own"):
        whatif(run, at=80, rounds=30, true_world=True)


# Live runs


def test_a_live_run_is_asked_while_it_goes_on(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"fleet.channels": 2})
    sent = [dispatch(live), dispatch(live)]
    for number in range(12):
        deliver(live, sent.pop(0), weights(float(number % 3)))
        sent.append(dispatch(live))
    run = open_run(tmp_path / "run")
    assert not run.finished
    answer = whatif(run, rounds=40, worlds=20, without=["a"], set={"objective.energy_weight": 0.9})
    assert answer.at_round == last_round(run) + 1
    assert answer.as_is.mean_cost.mean is not None and answer.what_if.mean_energy_j.mean is not None
    assert any(note.startswith("Over ") and "updates, what was measured came to" in note for note in answer.notes)
    again = whatif(run, at=8, rounds=20, worlds=3, look_back=False)
    assert again.at_round == 8
    with pytest.raises(FedtwinError, match=r"is a live run, and nobody knows the world it will meet"):
        whatif(run, rounds=5, true_world=True)
    live.close()


def test_a_synchronous_round_under_way_is_begun_anew(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **SYNC)
    for task in opened(live):
        deliver(live, task, weights(1.0))
    assert live.close_round()
    usual = whatif(tmp_path / "run", rounds=12, worlds=3)
    opened(live)
    under_way = open_run(tmp_path / "run")
    assert {known.status for known in under_way.twin().devices} == {"in-flight"}
    found = whatif(under_way, rounds=12, worlds=3).as_is
    assert usual.as_is.mean_cost.mean is not None and found.mean_cost.mean is not None
    assert found.least_mean_samples.low is not None and found.least_mean_samples.low > 0.0
    live.close()


def test_who_is_drained_is_asked_no_more(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"fleet.channels": 1})
    for _ in range(6):
        deliver(live, dispatch(live), weights(1.0))
    before = whatif(tmp_path / "run", rounds=30, worlds=3, engine="readable")
    live.commit(events.Steered(at_s=live.now_s(), command="drain", name="b", by="me"))
    run = open_run(tmp_path / "run")
    assert run.summary["drained"] == ["b"]
    after = whatif(run, rounds=30, worlds=3, engine="readable")
    assert before.as_is.least_mean_samples.low is not None and before.as_is.least_mean_samples.low > 0.0
    assert after.as_is.least_mean_samples.mean == 0.0 and "1 device is drained, and taken to stay so." in after.notes
    live.close()


def test_who_was_drained_then_is_asked_no_more_from_then_on(tmp_path: Path) -> None:
    """Also what it had in flight is not waited for: it would be asked again once that is in."""
    live = begun(tmp_path / "run", **{"fleet.channels": 2})
    first, second = dispatch(live), dispatch(live)
    name = live.core.names[second.device]
    for order in ("drain", "release"):
        if order == "drain":
            live.steer("drain", name=name)
        else:
            live.release(name, by="me")
        for _ in range(12):
            deliver(live, first, weights(1.0))
            first = dispatch(live)
        if order == "drain":
            told = whatif(tmp_path / "run", rounds=30, worlds=3, engine="readable")
            assert told.as_is.least_mean_samples.mean == 0.0 and "1 device is drained, and taken to stay so." in told.notes
            deliver(live, second, weights(1.0))
            then = last_round(open_run(tmp_path / "run"))
    run = open_run(tmp_path / "run")
    assert run.summary["drained"] == [] and isinstance(run, LiveRunFolder) and run.drained(round=then) == {name}
    told = whatif(run, at=then, rounds=30, worlds=3, engine="readable")
    assert told.as_is.least_mean_samples.mean == 0.0 and "1 device is drained, and taken to stay so." in told.notes
    assert not any("drained" in note for note in whatif(run, rounds=30, worlds=3, engine="readable").notes)
    live.close()


def test_who_was_turned_away_in_a_pause_was_not_silent(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"fleet.channels": 1})
    for _ in range(6):
        deliver(live, dispatch(live), weights(1.0))
    asked = next_question(live)
    assert isinstance(asked, events.Asked)
    live.commit(asked)
    live.steer("pause")
    offer = Accept(gain=1e-9, cpu_hz=2e9, power_w=0.1, compute_s=0.1, upload_s=0.1, compute_j=0.1, upload_j=0.01)
    answer = live.core.answered(asked, offer, "0" * 32, live.now_s())
    assert isinstance(answer, events.Declined) and answer.reason == "no task: the run is paused"
    live.commit(answer)
    live.steer("resume")
    deliver(live, dispatch(live), weights(1.0))
    assert not any("did not answer" in note for note in whatif(tmp_path / "run", rounds=5, worlds=2).notes)
    live.close()


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 250))
def test_whatever_has_happened_to_a_live_run_it_answers_or_says_why_not(seed: int, steps: int) -> None:
    fixed = {"fleet.devices": 3, "fleet.channels": 2, "run.rounds": 50, "live.max_change": 100, "learning.mixing": 0.5}
    with tempfile.TemporaryDirectory() as place:
        live = opening.begin(Path(place, "run"), build_config({}, fixed), "main", CODEC.encode(weights(0.0)))
        driver = Driver(live, seed)
        for _ in range(steps):
            driver.step()
        try:
            answer = whatif(Path(place, "run"), rounds=10, worlds=2, engine="readable")
        except FedtwinError as error:
            known = ("has no twin yet", "Nothing has been heard", "Nobody is left to be asked")
            assert any(sentence in str(error) for sentence in known), error
        else:
            assert answer.as_is.total_queue.mean is not None
        live.close()
