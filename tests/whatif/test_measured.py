"""What boards measure against what is modelled: the factors go on as they were, with as much doubt as they left."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedtwin import Run, open_run, whatif
from fedtwin.live.run import opening
from fedtwin.live.wire.protocol import Hello, Own
from fedtwin.runs.rows import Floats
from fedtwin.whatif.answer import NUMBERS, Played
from fedtwin.whatif.fork import fork_of
from fedtwin.whatif.measured import STRETCHES, Measured, as_measured, measured_by
from tests.live.run.test_live_run import CODEC, begun, config_of, deliver, dispatch, weights
from tests.whatif.runs import played


def measured(logs: Floats, word: tuple[float, float] = (1.0, 1.0), predicted: tuple[float, float] = (0.5, 0.3)) -> Measured:
    return Measured(word, logs, np.array([0]), np.array([predicted]))


def test_the_factor_to_come_lies_between_the_quantiles_in_nine_cases_of_ten() -> None:
    random = np.random.default_rng(4)
    root = np.array([[0.3, 0.0, 0.0], [0.1, 0.05, 0.0], [0.0, 0.0, 0.1]])
    inside = np.zeros(3)
    for case in range(400):
        *logs, to_come = random.standard_normal((STRETCHES + 1, 3)) @ root.T + [0.2, -0.1, 0.0]
        low, high = np.quantile(measured(np.array(logs)).sample(200, case), [0.05, 0.95], axis=0)
        inside += (low <= np.exp(to_come)) & (np.exp(to_come) <= high)
    assert np.all((inside / 400 > 0.85) & (inside / 400 < 0.95)), inside / 400


def test_the_same_seed_gives_the_same_factors_and_no_doubt_gives_one() -> None:
    sure = measured(np.full((STRETCHES, 3), [np.log(2.0), 0.0, 0.0]))
    assert sure.sample(5, 1) == pytest.approx(np.tile([2.0, 1.0, 1.0], (5, 1))) and sure.factors == pytest.approx((2.0, 1.0))
    doubtful = measured(np.log(np.linspace(1.0, 3.0, 24)).reshape(8, 3))
    assert np.array_equal(doubtful.sample(7, 3), doubtful.sample(7, 3))
    assert not np.array_equal(doubtful.sample(7, 3), doubtful.sample(7, 4))


def test_a_future_takes_the_factors_in_time_energy_cost_and_clock_and_nowhere_else(tmp_path: Path) -> None:
    fork = fork_of(played(tmp_path / "run", objective__energy_weight=0.25), 50)
    objective = fork.config.objective
    modelled = 0.75 * 0.5 / objective.max_time_s + 0.25 * 0.6 / objective.max_energy_j  # by their word, twice the joules
    numbers = np.array([modelled, 0.5, 0.3, 4.0, 9.0])
    one = Played(fork.clock_s + np.array([1.0, 2.0]), np.array([0.2, modelled]), np.array([1.0, 9.0]), numbers)
    other = as_measured(one, np.array([2.0, 1.5, 1.1]), measured(np.zeros((8, 3)), (1.0, 2.0), (0.5, 0.6)), fork)
    came_to = 1.1 * (0.75 * 1.0 / objective.max_time_s + 0.25 * 0.9 / objective.max_energy_j)
    assert dict(zip(NUMBERS, other.numbers.tolist(), strict=True)) == pytest.approx(
        {"mean_cost": came_to, "mean_time_s": 1.0, "mean_energy_j": 0.9, "least_mean_samples": 4.0, "total_queue": 9.0}
    )
    assert other.mean_cost == pytest.approx(one.mean_cost * came_to / modelled)
    assert other.clock_s == pytest.approx(fork.clock_s + np.array([2.0, 4.0]))
    assert other.total_queue.tolist() == one.total_queue.tolist() and one.numbers[1] == 0.5


def test_nothing_is_measured_otherwise_in_a_simulation(tmp_path: Path) -> None:
    run = played(tmp_path / "run")
    assert measured_by(run, fork_of(run, 100), 20) is None


def test_boards_that_take_longer_than_is_modelled_are_expected_to_go_on_so(tmp_path: Path) -> None:
    """Every update is said and seen to take 0.2 s, whatever the model makes of gain and CPU."""
    live = begun(tmp_path / "run", **{"fleet.channels": 1, "run.rounds": 100})
    for number in range(60):
        deliver(live, dispatch(live), weights(float(number % 3)))
    run = open_run(tmp_path / "run")
    fork = fork_of(run, None)
    found = measured_by(run, fork, 1000)
    assert found is not None and (len(found.logs), len(found.device)) == (STRETCHES, 59), "the first dispatch is not counted"
    answer = whatif(run, rounds=40, worlds=20)
    row = run.rounds.slice(5).to_pylist()[0]
    assert row["compute_s"] + row["upload_s"] == pytest.approx(0.2)
    assert answer.as_is.mean_time_s.mean == pytest.approx(0.2, rel=0.01)
    assert answer.as_is.mean_energy_j.mean == pytest.approx(row["compute_j"] + row["upload_j"], rel=0.01)
    assert answer.as_is.mean_cost.mean == pytest.approx(row["cost"], rel=0.01)
    assert answer.notes[0].startswith("Asked at round ")
    assert any(note.startswith("Over 59 updates, what was measured came to") for note in answer.notes)
    early = fork_of(run, 5)
    assert measured_by(run, early, 40) is None, "of too few"
    assert measured_by(run, replace(fork, clock_s=-1.0), 40) is None, "by then nothing had ended"
    live.close()


def constant(folder: Path, own: dict[str, float] | None = None, **changed: tuple[int, float]) -> Run:
    """60 updates, each said and seen to take 0.2 s; ``changed``: after how many of them a setting has another value."""
    live = opening.begin(folder, config_of(**{"fleet.channels": 1, "run.rounds": 200}), "main", CODEC.encode(weights(0.0)))
    for name in ("a", "b", "c"):
        live.commit(live.core.join(name, Hello(samples=50, own=Own.model_validate(own) if own else None), live.now_s()))
    live.commit(live.core.start(live.now_s()))
    for number in range(60):
        for setting, (after, value) in changed.items():
            if number == after:
                live.change(f"objective.{setting}", value)
        deliver(live, dispatch(live), weights(float(number % 3)))
    live.close()
    return open_run(folder)


@pytest.mark.parametrize(
    ("own", "changed"),
    [
        ({"max_time_s": 20.0, "max_energy_j": 1.0}, {}),
        ({"max_time_s": 1.0, "max_energy_j": 60.0}, {}),
        (None, {"max_time_s": (40, 3.0)}),
        (None, {"energy_weight": (30, 1.0)}),
        (None, {"energy_weight": (55, 0.99)}),
        (None, {"max_time_s": (40, 0.3)}),
    ],
)
def test_the_cost_to_come_is_by_the_limits_and_weights_in_force(
    tmp_path: Path, own: dict[str, float] | None, changed: dict[str, tuple[int, float]]
) -> None:
    """A limit of a board's own, one that is set while it goes on, also one that the model, but no board, would decline by."""
    run = constant(tmp_path / "run", own, **changed)
    due = run.rounds.to_pylist()[-1]["cost"]
    said = whatif(run, rounds=40, worlds=20).as_is.mean_cost
    assert said.mean == pytest.approx(due, rel=0.02), (said, due)


def test_tasks_that_come_to_nothing_are_expected_to_go_on_being_charged_for(tmp_path: Path) -> None:
    live = begun(tmp_path / "run", **{"fleet.channels": 1, "live.back_off_s": 1e-6, "run.rounds": 100})
    for number in range(60):
        sent = dispatch(live)
        task = live.core.task_of(sent.device)
        if number % 3 == 2 and task is not None:
            live.commit(live.core.give_up(task, live.now_s(), "the deadline has passed", "idle"))
        else:
            deliver(live, sent, weights(float(number % 3)))
    run = open_run(tmp_path / "run")
    costs = [row["cost"] for row in run.rounds.to_pylist() if not row["declined"]]
    said = whatif(run, rounds=30, worlds=99).as_is.mean_cost
    assert said.mean == pytest.approx(sum(costs) / len(costs), rel=0.1) and max(costs) > 2 * min(costs)
    live.close()
