"""The compiled way of a future is the readable one to the last bit, from any fork, in any world."""

from pathlib import Path
from typing import Any

import pytest

from fedtwin import whatif
from fedtwin.whatif import playing
from fedtwin.whatif.compiled import play_compiled
from tests.conftest import mostly_slow
from tests.whatif.runs import played
from tests.whatif.test_fork import assert_own_future

KINDS: dict[str, dict[str, Any]] = {
    "cu-ucb": {},
    "on arrival": {"policy__feedback": "on-arrival"},
    "random": {"policy__name": "random"},
    "genie": {"policy__name": "genie"},
    "twin-dpp": {"policy__name": "twin-dpp", "twin__gain": "mean"},
    "sounding": {"policy__name": "twin-dpp", "twin__gain": "current"},
    "sync": {"policy__name": "Sy-fairness"},
    "timeout": {"run__mode": "sync", "run__sync_timeout_s": 0.6},
    "own terms": {"fleet__max_power_w": [0.05, 1.0], "fleet__samples_spread": [0.0, 0.4], "objective__max_time_s": 0.7},
}
QUESTIONS: list[dict[str, Any]] = [
    {"at": 5},
    {"set": {"objective.min_mean_samples": 4.0, "objective.energy_weight": 0.2}},
    {"at": 20, "set": {"fleet.channels": 1}, "without": [0, 5]},
    {"at": 20, "set": {"fleet.channels": 7}, "add": 3},
]


@pytest.mark.parametrize("kind", mostly_slow(KINDS, "cu-ucb"))
def test_both_ways_give_the_same_bits(kind: str, tmp_path: Path) -> None:
    run = played(tmp_path / "run", run__rounds=60, **KINDS[kind])
    for question in QUESTIONS:
        asked = {**question, "rounds": 70, "worlds": 3, "look_back": False}
        readable, compiled = (whatif(run, **asked, engine=engine) for engine in ("readable", "compiled"))
        assert readable == compiled, question


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_too_a_run_goes_on_as_it_did(kind: str, tmp_path: Path) -> None:
    run = played(tmp_path / "run", run__rounds=90, **KINDS[kind])
    at = 7 if run.config.run.mode == "sync" else 30
    ahead = sum(row["round"] >= at and not row["declined"] for row in run.rounds.to_pylist())
    if run.config.run.mode == "async":
        ahead = 90 - at + 1
    assert_own_future(run, at, ahead, engine="compiled")


@pytest.mark.slow
def test_a_large_fleet_is_indexed_and_goes_on_as_it_did(tmp_path: Path) -> None:
    large = {"fleet__devices": 450, "fleet__channels": 40, "objective__min_mean_samples": 0.05}
    run = played(tmp_path / "run", run__rounds=900, run__engine="compiled", **large)
    assert_own_future(run, 500, 401, engine="compiled")
    asked: dict[str, Any] = {"at": 500, "rounds": 300, "worlds": 2, "add": 2, "without": [3], "look_back": False}
    assert whatif(run, **asked, engine="readable") == whatif(run, **asked, engine="compiled")


@pytest.mark.slow
def test_code_of_the_users_that_compiles_to_something_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held against the readable way in one world."""
    run = played(tmp_path / "run", run__rounds=60)
    usual = whatif(run, at=30, rounds=20, worlds=3, engine="readable")
    monkeypatch.setattr(playing, "is_users", lambda _: True)
    monkeypatch.setattr(playing, "play_compiled", lambda fork, worlds, points: list(play_compiled(fork, worlds, points))[::-1])
    assert whatif(run, at=30, rounds=20, worlds=3, engine="compiled") == usual


def test_code_of_the_users_that_fails_only_where_it_is_compiled_is_played_readably(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = played(tmp_path / "run", run__rounds=60)
    asked: dict[str, Any] = {"at": 30, "rounds": 20, "worlds": 3}
    usual = whatif(run, **asked, engine="readable")

    def too_large(*_: Any) -> Any:
        raise OverflowError("math.floor of a number over 1e12")

    monkeypatch.setattr(playing, "play_compiled", too_large)
    with pytest.raises(OverflowError):
        whatif(run, **asked, engine="compiled")
    monkeypatch.setattr(playing, "is_users", lambda _: True)
    assert whatif(run, **asked, engine="compiled") == usual
