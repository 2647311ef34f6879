"""Whoever follows a run hears the same from either engine, and may end it: what is on disk then can be resumed."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.config import Config, load_config
from fedtwin.errors import EnginesDifferError, FedtwinError, FedtwinWarning
from fedtwin.learning.evaluation import Evaluation
from fedtwin.records import Row, rounds_schema, to_table
from fedtwin.sim import Callback, Result, resume, simulate
from fedtwin.sim.callbacks import Listeners
from tests.sim.test_watch import broken, configured

ENGINES = ("readable", "compiled")
TIGHT = {"objective.max_time_s": 0.4}


class BoomError(ValueError):
    """A callback's own. Errors of its kind, raised in compiled code, become sentences."""


class Follower(Callback):
    """Keeps all it hears."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.rows: list[Row] = []
        self.evaluations: list[Evaluation] = []
        self.results: list[Result] = []
        self.stop_at = stop_at

    def on_round(self, row: Row) -> None:
        self.rows.append(row)
        if self.stop_at is not None and row.round >= self.stop_at:
            raise BoomError("enough")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)

    def on_end(self, result: Result) -> None:
        self.results.append(result)


def of(engine: str = "readable", **settings: Any) -> Config:
    return load_config(overrides={"run.rounds": 300, "run.engine": engine, **settings})


def training(**settings: Any) -> Config:
    return of(**{"learning.executor": "serial", "run.rounds": 60, "learning.evaluate_every_s": 1.0, **settings})


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedtwinWarning)
        yield


@pytest.mark.parametrize("settings", [{}, TIGHT, {"policy.name": "Sy-fairness", **TIGHT}], ids=str)
def test_both_engines_tell_of_the_rows_of_the_records_in_their_order(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedtwin.sim.compiled.ROWS_PER_PART", 64)
    followers = {engine: Follower() for engine in ENGINES}
    results = [simulate(of(engine, **settings), callbacks=followers[engine]) for engine in ENGINES]
    readable, compiled = (follower.rows for follower in followers.values())
    assert readable == compiled and len(readable) > 300 - 1
    assert to_table(readable, rounds_schema(trace=False, learning=False)).equals(results[0].rounds.combine_chunks())
    assert [type(value) for value in readable[7]] == [type(value) for value in compiled[7]]
    assert [followers[engine].results for engine in ENGINES] == [[results[0]], [results[1]]]


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_are_told_where_none_are_kept(engine: str) -> None:
    follower = Follower()
    result = simulate(of(engine), records=False, callbacks=[follower])
    assert len(follower.rows) == result.summary.rounds + result.summary.declines


def test_functions_and_objects_are_called_in_the_order_they_are_given() -> None:
    heard: list[str] = []

    class Duck:
        def on_round(self, _: Row) -> None:
            heard.append("duck")

    class First(Callback):
        def on_round(self, row: Row) -> None:
            heard.append(f"first {row.round}")

    simulate(
        of("readable", **{"run.rounds": 1}), callbacks=[First(), Duck()], on_round=lambda _: heard.append("function"),
        on_end=lambda result: heard.append(f"end {result.summary.rounds}"),
    )  # fmt: skip
    assert heard == ["first 1", "duck", "function", "end 1"]


def test_who_overrides_nothing_is_not_called() -> None:
    listeners = Listeners([Callback()])
    assert not listeners.of_rounds and not listeners.of_evaluations
    assert Listeners([Follower()]).of_rounds


@pytest.mark.parametrize("wrong", [[object()], 7, [Follower]])
def test_what_is_no_callback_is_refused(wrong: Any) -> None:
    with pytest.raises(FedtwinError, match=r"callbacks = .* is no callback: an object with a method on_round"):
        simulate(of(), callbacks=wrong)
    with pytest.raises(FedtwinError, match="on_round = 7 is a int: a function is needed"):
        simulate(of(), on_round=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["readable", pytest.param("compiled", marks=pytest.mark.slow)])
def test_an_error_of_a_callback_is_its_own_and_leaves_a_folder_that_goes_on(tmp_path: Path, engine: str) -> None:
    """Also with a policy of the user's own, whose errors in compiled code become sentences."""
    config = configured(tmp_path, score="-view.queue * view.samples", settings={"run.engine": engine})
    whole = simulate(config, out=tmp_path / "whole")
    with pytest.raises(BoomError, match="enough") as caught:
        simulate(config, out=tmp_path / "cut", callbacks=[Follower(stop_at=150)])
    assert caught.traceback[-1].name == "on_round"
    assert (tmp_path / "cut" / "unfinished.json").exists()
    follower = Follower()
    resumed = resume(tmp_path / "cut", callbacks=[follower])
    assert resumed.summary == whole.summary and [row.round for row in follower.rows] == whole.rounds["round"].to_pylist()
    names = ("rounds.parquet", "summary.json", "SHA256SUMS")
    assert all((tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in names)
    assert follower.results == [resumed]


def test_evaluations_are_told_while_the_run_is_played(tmp_path: Path) -> None:
    told: list[Evaluation | Row] = []
    result = simulate(training(), out=tmp_path / "run", on_round=told.append, on_evaluation=told.append)
    assert [one for one in told if isinstance(one, Evaluation)] == result.evaluations
    first, last = (told.index(result.evaluations[place]) for place in (0, -2))
    assert first < 3 and last < len(told) - 2, "not only at the end"
    silent = simulate(training())
    assert silent.evaluations == result.evaluations and silent.summary == result.summary


def test_a_training_ended_by_on_evaluation_goes_on(tmp_path: Path) -> None:
    def stop(evaluation: Evaluation) -> None:
        if evaluation.clock_s >= 2.0:
            raise BoomError

    whole = simulate(training())
    with pytest.raises(BoomError):
        simulate(training(), out=tmp_path / "cut", on_evaluation=stop, checkpoint_every_s=0.0)
    follower = Follower()
    resumed = resume(tmp_path / "cut", callbacks=follower)
    assert follower.evaluations == resumed.evaluations == whole.evaluations and len(follower.rows) == 60
    assert all(np.array_equal(resumed.weights[name], tensor) for name, tensor in whole.weights.items())


def test_an_error_at_the_end_leaves_a_finished_folder(tmp_path: Path) -> None:
    def fail(_: Result) -> None:
        raise BoomError

    with pytest.raises(BoomError):
        simulate(of(), out=tmp_path / "run", on_end=fail)
    assert (tmp_path / "run" / "summary.json").exists() and not (tmp_path / "run" / "unfinished.json").exists()


@pytest.mark.slow
def test_rows_that_were_told_are_not_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code that is caught later than its first rows were told does not start again readably: they would come twice."""
    monkeypatch.setenv("FEDTWIN_CACHE", str(tmp_path / "cache"))
    broken(monkeypatch)
    monkeypatch.setattr("fedtwin.sim.run.engine_for", lambda *_, **__: "compiled")
    score = "-view.queue + (math.sqrt(view.samples) if view.round > 1000 else 0.0)"
    config = configured(tmp_path, score=score, settings={"run.rounds": 3000})
    follower = Follower()
    with pytest.raises(EnginesDifferError, match="'readable' runs it as it is written"):
        simulate(config, callbacks=follower)
    assert follower.rows and [row.round for row in follower.rows] == sorted(row.round for row in follower.rows)
    assert follower.results == []
