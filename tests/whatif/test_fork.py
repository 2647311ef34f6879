"""With the true world given, a fork at any round gives the run's own future, to the last bit; the folder is only read."""

import tempfile
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtwin import FedtwinError, Run, open_run, simulate, whatif
from fedtwin.config import build_config
from fedtwin.whatif.fork import fork_of
from fedtwin.whatif.points import MOST_POINTS
from tests.runs.test_history import SETTINGS, quiet
from tests.whatif.runs import last_round, played


def assert_own_future(run: Run, at: int, rounds: int, until: Run | None = None, engine: Any = "readable") -> None:
    """Of ``until``, which went on as the run would have."""
    whole = run if until is None else until
    found = whatif(run, at=at, rounds=rounds, true_world=True, engine=engine).as_is
    sync = run.config.run.mode == "sync"
    rows = [row for row in whole.rounds.to_pylist() if row["round"] >= at]
    taken = [row for row in rows if not row["declined"]]
    took_s = {row["round"]: 0.0 for row in taken}
    for row in taken:
        took_s[row["round"]] = max(took_s[row["round"]], row["compute_s"] + row["upload_s"])
    if not taken:
        assert found.mean_cost.mean is None
        return
    costs = [row["cost"] for row in taken]
    timeout_s = run.config.run.sync_timeout_s or float("inf")
    times_s = [min(took_s[row["round"]], timeout_s) if sync else row["compute_s"] + row["upload_s"] for row in taken]
    assert found.mean_cost.mean == sum_of(costs) / len(costs)
    assert found.mean_time_s.mean == sum_of(times_s) / len(costs)
    assert found.mean_energy_j.mean == sum_of([row["compute_j"] + row["upload_j"] for row in taken]) / len(costs)
    assert found.total_queue.mean == whole.summary["total_queue"]
    last = max(row["round"] for row in rows)
    trained = dict.fromkeys(range(run.config.fleet.devices), 0.0)
    for row in taken:
        trained[row["device"]] += 0.0 if row.get("dropped") else row["samples"]
    assert found.least_mean_samples.mean == min(trained.values()) / (last - at + 1)
    if not sync and rounds <= MOST_POINTS and len(taken) == len(rows):
        running = [total / (k + 1) for k, total in enumerate(accumulate(costs))]
        assert found.curves["mean_cost"]["mean"] == running
        assert found.curves["clock_s"] == [row["clock_s"] for row in rows]


def sum_of(values: list[float]) -> float:
    """One after the other, as both engines add them."""
    total = 0.0
    for value in values:
        total += value
    return total


@quiet
@settings(max_examples=30)
@given(changes=SETTINGS, where=st.floats(0.0, 1.0))
def test_any_run_goes_on_as_it_did(changes: dict[str, Any], where: float) -> None:
    with tempfile.TemporaryDirectory() as place:
        simulate(build_config({}, changes), out=Path(place, "run"))
        run = open_run(Path(place, "run"))
        last = last_round(run)
        if last == 0:
            return
        at = 1 + int(where * (last - 1))
        ahead = last - at + 1
        if changes["run.mode"] == "sync":
            ahead = sum(row["round"] >= at and not row["declined"] for row in run.rounds.to_pylist())
        if ahead > 0:
            assert_own_future(run, at, ahead)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_finished_run_goes_on_as_a_longer_one(tmp_path: Path, mode: str) -> None:
    short = played(tmp_path / "short", run__rounds=60, run__mode=mode)
    long = played(tmp_path / "long", run__rounds=90, run__mode=mode)
    at = last_round(short) + 1
    assert whatif(short, rounds=30, true_world=True).at_round == at
    assert_own_future(short, at, 30, until=long)


def test_what_the_policy_keeps_goes_on_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from typing import NamedTuple\n"
        "from fedtwin.policies import Policy\n"
        "class Kept(NamedTuple):\n"
        "    last: float = 0.0\n"
        "    declines: float = 0.0\n"
        "def observe(state, news, knobs):\n"
        "    if news.declined:\n"
        "        return Kept(state.last, state.declines + 1.0)\n"
        "    return Kept(news.cost, state.declines)\n"
        "def score(view, knobs):\n"
        "    return view.state.last - 0.01 * view.queue + view.state.declines\n"
        "POLICY = Policy(score, power='optimal', state=Kept, observe=observe)\n"
    )
    limits = {"objective.max_time_s": 0.7, "fleet.devices": 8, "fleet.channels": 3, "run.rounds": 80}
    config = build_config({"code": {"folder": str(tmp_path)}}, {"policy.name": "mine:POLICY", **limits})
    simulate(config, out=tmp_path / "run")
    run = open_run(tmp_path / "run")
    with pytest.raises(FedtwinError, match=r"policy.name = 'mine:POLICY' is code of your own, which would be run: say trust"):
        whatif(run, at=30, rounds=20)
    found = whatif(run, at=30, rounds=51, true_world=True, trust=True).as_is
    costs = [row["cost"] for row in run.rounds.to_pylist() if row["round"] >= 30 and not row["declined"]]
    assert found.mean_cost.mean == sum_of(costs) / len(costs)


def test_nothing_in_the_folder_is_touched(tmp_path: Path) -> None:
    run = played(tmp_path / "run", run__rounds=40)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.path.rglob("*") if path.is_file()}
    whatif(run, at=20, rounds=20, worlds=3, set={"policy.v": 1.0}, add=1, without=[0])
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.path.rglob("*") if path.is_file()}
    assert after == before


def test_a_fork_knows_who_is_in_flight_and_until_when(tmp_path: Path) -> None:
    run = played(tmp_path / "run")
    fork, rows = fork_of(run, 50), [*run.start.to_pylist(), *run.rounds.to_pylist()]
    sent = {row["device"]: row for row in rows if row["round"] < 50 and not row["declined"]}
    in_flight = {device for device, known in enumerate(fork.twin.devices) if known.status == "in-flight"}
    assert {one.device for one in fork.flights} == in_flight and len(in_flight) == 2
    for one in fork.flights:
        row = sent[one.device]
        assert one.at_s == row["clock_s"] + row["compute_s"] + row["upload_s"] > fork.clock_s
    assert fork.clock_s == next(row["clock_s"] for row in rows if row["round"] == 50)


def test_a_run_that_was_killed_is_asked_about_from_its_last_row(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(row: Any) -> None:
        if row.round == 55:
            raise StopError

    changes = {"fleet.devices": 8, "fleet.channels": 3, "run.rounds": 100, "run.engine": "readable"}
    with pytest.raises(StopError):
        simulate(changes, out=tmp_path / "run", on_round=stop)
    whole = played(tmp_path / "whole", run__rounds=100)
    run = open_run(tmp_path / "run")
    last = last_round(run)
    assert not run.finished and last >= 54
    assert whatif(run, rounds=100 - last, true_world=True).at_round == last + 1
    assert_own_future(run, last + 1, 100 - last, until=whole)


@pytest.mark.parametrize("at", [0, -1, 122, 1.5, True, "now"])
def test_a_round_that_is_not_there_is_one_sentence(tmp_path: Path, at: Any) -> None:
    run = played(tmp_path / "run")
    with pytest.raises(FedtwinError, match=r"at = .* is not allowed: .* can be forked at the rounds 1 to 121"):
        whatif(run, at=at, rounds=5, worlds=2)


def test_a_run_without_records_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match=r"run.records = false"):
        whatif(played(tmp_path / "run", run__records=False), rounds=5, worlds=2)
