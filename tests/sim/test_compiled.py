"""The compiled engine against the readable one: the same rows, summary and series, to the last bit, with scan and index."""

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedtwin.config import Config, load_config
from fedtwin.draws import Purpose, ranks
from fedtwin.errors import CannotCompileError, FedtwinError, FedtwinWarning
from fedtwin.policies import Knobs, Policy, View, load_policy
from fedtwin.registry import POLICIES
from fedtwin.sim import Result, engine_for, simulate
from fedtwin.sim.fast import run as fast
from fedtwin.world.fleet import fleet_columns
from tests.conftest import mostly_slow

CHECKPOINTS = (1, 5, 50, 120)
OWN = {
    "max_power_w": [0.01, 0.5],
    "cycles_per_sample": [1e6, 8e6],
    "update_bits": [2e6, 9e6],
    "max_time_s": [0.3, 1.2],
    "max_energy_j": [0.2, 2.0],
    "samples_spread": [0.0, 0.9],
}
MODES = [(name, mode) for name in POLICIES for mode in ("async", "sync") if mode == "async" or name in ("fairness", "cu-ucb")]


def both(config: Config, **options: Any) -> tuple[Result, Result]:
    """The run by either engine."""
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedtwinWarning)
        for engine in ("readable", "compiled"):
            of = config.model_copy(update={"run": config.run.model_copy(update={"engine": engine})})
            checkpoints = [round_ for round_ in CHECKPOINTS if round_ <= config.run.rounds]
            results.append(simulate(of, checkpoints=checkpoints, **options))
    return results[0], results[1]


def assert_same(readable: Result, compiled: Result) -> None:
    assert compiled.rounds.schema.equals(readable.rounds.schema)
    for name in readable.rounds.column_names:
        assert compiled.rounds[name].equals(readable.rounds[name]), name
    assert compiled.summary == readable.summary
    assert compiled.series == readable.series
    assert compiled.devices.equals(readable.devices)


@st.composite
def configurations(draw: st.DrawFn, name: str, mode: str) -> Config:
    """Small fleets in all kinds of trouble: tight limits, so that devices decline, every kind of weight, unlike devices."""
    devices = draw(st.sampled_from([1, 2, 3, 9, 30]))
    own = draw(st.lists(st.sampled_from(list(OWN)), unique=True))
    return load_config(
        overrides={
            **{f"fleet.{quantity}": OWN[quantity] for quantity in own},
            "policy.name": name,
            "run.mode": mode,
            "run.rounds": draw(st.sampled_from([1, 7, 150])),
            "run.seed": draw(st.integers(0, 2**63 - 1)),
            "fleet.devices": devices,
            "fleet.channels": draw(st.integers(1, devices)),
            "objective.max_time_s": draw(st.sampled_from([0.3, 0.5, 0.8, 1.0])),
            "objective.energy_weight": draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
            "objective.min_mean_samples": draw(st.sampled_from([0.0, 0.5, 2.0, 30.0])),
            "policy.v": draw(st.sampled_from([0.0, 1e3, 1e5])),
            "policy.bonus_scale": draw(st.sampled_from([0.0, 0.01, 1.0])),
            "policy.feedback": draw(st.sampled_from(["on-selection", "on-arrival"])),
            **({"run.sync_timeout_s": draw(st.sampled_from([None, 0.05, 0.3, 0.5, 0.9]))} if mode == "sync" else {}),
        }
    )


@pytest.mark.parametrize("index_from", [1, 10**9], ids=["index", "scan"])
@pytest.mark.parametrize(("name", "mode"), MODES)
@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_engines_make_the_same_run(
    monkeypatch: pytest.MonkeyPatch, data: st.DataObject, name: str, mode: str, index_from: int
) -> None:
    monkeypatch.setattr(fast, "INDEX_FROM", index_from)
    assert_same(*both(data.draw(configurations(name, mode))))


@pytest.mark.parametrize("name", ["cu-ucb", "queue-only", "fairness"])
def test_index_and_scan_agree_over_a_long_run_of_a_larger_fleet(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    overrides = {"policy.name": name, "fleet.devices": 700, "fleet.channels": 40, "run.rounds": 20_000}
    feasible = {"objective.min_mean_samples": 0.05, "policy.bonus_scale": 0.05, "run.engine": "compiled"}
    config = load_config(overrides={**overrides, **feasible})
    found = []
    for index_from in (1, 10**9):
        monkeypatch.setattr(fast, "INDEX_FROM", index_from)
        found.append(simulate(config).rounds)
    assert found[0].equals(found[1])


@pytest.mark.slow
def test_more_answers_in_a_synchronous_round_than_were_provided_for() -> None:
    shape = {"fleet.devices": 1500, "fleet.channels": 1100, "run.rounds": 2300, "run.mode": "sync"}
    assert_same(*both(load_config(overrides={**shape, "policy.name": "fairness", "policy.power": "optimal"})))


@pytest.mark.parametrize("policy", ["fairness", f"{__name__}:FASTEST_KNOWN"])
def test_devices_that_are_dropped_are_the_same_in_both(policy: str) -> None:
    """The second policy looks at when a compute time was heard of, and at nothing that is counted."""
    config = load_config(
        overrides={"policy.name": policy, "run.mode": "sync", "run.rounds": 600, "run.sync_timeout_s": 0.6, "run.seed": 2}
    )
    readable, compiled = both(config)
    assert_same(readable, compiled)
    assert readable.summary.drops and readable.summary.drops == readable.rounds["dropped"].to_pylist().count(True)


def test_run_folders_hold_the_same_records(tmp_path: Path) -> None:
    config = load_config(overrides={"run.rounds": 25_000, "run.seed": 5, "objective.max_time_s": 0.8})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedtwinWarning)
        for engine in ("readable", "compiled"):
            of = config.model_copy(update={"run": config.run.model_copy(update={"engine": engine})})
            simulate(of, out=tmp_path / engine)
    for name in ("rounds.parquet", "start.parquet", "devices.parquet", "summary.json"):
        assert (tmp_path / "readable" / name).read_bytes() == (tmp_path / "compiled" / name).read_bytes(), name


@pytest.mark.parametrize("engine", ["readable", "compiled"])
def test_without_records_only_the_summary_is_kept(tmp_path: Path, engine: str) -> None:
    config = load_config(overrides={"run.rounds": 300, "run.engine": engine, "run.records": False})
    result = simulate(config, out=tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"summary.json", "config.toml", "devices.parquet"} <= names
    assert not {"rounds.parquet", "start.parquet", "unfinished.json"} & names
    with pytest.raises(FedtwinError, match="kept no records"):
        _ = result.rounds
    with_records = simulate(load_config(overrides={"run.rounds": 300}))
    assert result.summary == with_records.summary


def test_fleets_are_the_same_drawn_by_either() -> None:
    from fedtwin.world import fleet

    config = load_config(overrides={"fleet.devices": fleet.LARGE, "run.seed": 3})
    drawn, by_hand = fleet.fleet_columns(config), [fleet.make_fleet(config)[n] for n in (0, 17, fleet.LARGE - 1)]
    small = fleet.fleet_columns(load_config(overrides={"fleet.devices": 100, "run.seed": 3}))
    for column, few in zip(drawn.numbers, small.numbers, strict=True):
        assert (column[:100] == few).all()
    assert by_hand[1].samples == drawn.samples[17]


TABLE = {0: "even", 1: "odd"}


def looks_at_a_table(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    """A policy that Python runs and Numba does not know how to compile."""
    return float(len(TABLE[view.device % 2]))


STRANGE = Policy(looks_at_a_table, power="max")


def test_a_policy_that_cannot_be_compiled_runs_readably() -> None:
    name = f"{__name__}:STRANGE"
    with pytest.raises(CannotCompileError, match=r"cannot be compiled .*TABLE.* run\.engine = 'readable'"):
        simulate(load_config(overrides={"policy.name": name, "run.engine": "compiled", "run.rounds": 50}))
    shape = {"run.rounds": 250_000, "fleet.devices": 2, "fleet.channels": 1}
    assert engine_for(load_config(overrides={"policy.name": name, **shape})) == "readable"


def rate(view: View) -> float:
    """A helper of the user's that happens to be called like a part of the engine."""
    return float(view.device)


def by_rate(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    return -rate(view)


SAME_NAMES = Policy(by_rate, power="max")
PARTIAL = Policy(functools.partial(by_rate), power="max")


@pytest.mark.slow
def test_a_users_function_is_never_mistaken_for_one_of_the_engine() -> None:
    assert_same(*both(load_config(overrides={"policy.name": f"{__name__}:SAME_NAMES", "run.rounds": 40})))


def test_a_score_that_is_no_plain_function_runs_readably() -> None:
    overrides = {"policy.name": f"{__name__}:PARTIAL", "run.rounds": 10**9}
    assert engine_for(load_config(overrides=overrides)) == "readable"
    with pytest.raises(CannotCompileError, match="no plain function"):
        simulate(load_config(overrides={**overrides, "run.engine": "compiled"}))


def cubed(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    return view.queue**3


def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


def recursive(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    return float(factorial(view.device % 3))


def with_numpy(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    return float(np.tanh(view.queue))


def per_selection(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    return view.queue / view.selections


def fastest_known(view: View, knobs: Knobs) -> float:  # noqa: ARG001
    return view.compute_s


CUBED, RECURSIVE, WITH_NUMPY = (Policy(score, power="max") for score in (cubed, recursive, with_numpy))
PER_SELECTION, FASTEST_KNOWN = (Policy(score, power="max") for score in (per_selection, fastest_known))


@pytest.mark.parametrize(
    ("name", "reason"), [("CUBED", r"uses \*\*"), ("RECURSIVE", "calls itself"), ("WITH_NUMPY", r"it uses np\.tanh")]
)
def test_what_compiled_code_would_compute_otherwise_is_not_compiled(name: str, reason: str) -> None:
    overrides = {"policy.name": f"{__name__}:{name}", "run.rounds": 20}
    with pytest.raises(CannotCompileError, match=reason):
        simulate(load_config(overrides={**overrides, "run.engine": "compiled"}))
    assert simulate(load_config(overrides=overrides)).summary.rounds == 20


def test_a_score_that_is_no_number_comes_last_in_both() -> None:
    """Nobody's compute time is known at first: ranks decide, then who is known goes before who is not."""
    assert_same(*both(load_config(overrides={"policy.name": f"{__name__}:FASTEST_KNOWN", "run.rounds": 120})))


@pytest.mark.parametrize("engine", ["readable", "compiled"])
def test_a_score_that_fails_is_one_sentence_in_both(engine: str) -> None:
    overrides = {"policy.name": f"{__name__}:PER_SELECTION", "run.rounds": 20, "run.engine": engine}
    with pytest.raises(FedtwinError, match=r"failed in round 1( for device \d+)?: ZeroDivisionError"):
        simulate(load_config(overrides=overrides))


@pytest.mark.parametrize("min_mean_samples", [1.0, 1.03])
def test_where_everybody_ties_scans_take_over_and_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, min_mean_samples: float
) -> None:
    overrides = {"fleet.devices": 500, "fleet.channels": 20, "run.rounds": 6000, "run.engine": "compiled"}
    config = load_config(overrides={**overrides, "objective.min_mean_samples": min_mean_samples})
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedtwinWarning)
        for index_from in (1, 10**9):
            monkeypatch.setattr(fast, "INDEX_FROM", index_from)
            found.append(simulate(config).rounds)
    assert found[0].equals(found[1])


def test_auto_takes_the_engine_that_is_quicker() -> None:
    assert engine_for(load_config(overrides={"run.rounds": 10**9})) == "compiled"
    assert engine_for(load_config(overrides={"run.rounds": 10**9, "run.engine": "readable"})) == "readable"
    assert engine_for(load_config(overrides={"run.rounds": 10**9, "learning.dataset": "digits"})) == "readable"
    assert engine_for(load_config(overrides={"run.rounds": 10**9}), trace=True) == "readable"


@pytest.mark.parametrize("name", [name for name in POLICIES if isinstance(load_policy(name), Policy)])
def test_a_run_goes_on_after_an_interruption_between_any_two_rows(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Parts of any size: the compiled functions are left and entered again in the middle of a round."""
    config = load_config(overrides={"policy.name": name, "run.rounds": 200, "objective.max_time_s": 0.6, "run.seed": 4})
    whole = simulate(config.model_copy(update={"run": config.run.model_copy(update={"engine": "readable"})})).rounds
    monkeypatch.setattr("fedtwin.sim.compiled.ROWS_PER_PART", 3)
    of = config.model_copy(update={"run": config.run.model_copy(update={"engine": "compiled"})})
    assert simulate(of).rounds.combine_chunks().equals(whole.combine_chunks())


def test_trace_and_learning_are_for_the_readable_engine(tmp_path: Path) -> None:
    asked = load_config(overrides={"run.engine": "compiled", "run.rounds": 10})
    with pytest.raises(FedtwinError, match=r"run\.engine = 'compiled' cannot be had with a trace"):
        simulate(asked, out=tmp_path / "run", trace=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(FedtwinError, match=r"run\.records = false keeps no rounds"):
        simulate(load_config(overrides={"run.records": False}), out=tmp_path / "run", trace=True)
    with pytest.raises(FedtwinError, match=r"a \[learning\] section"):
        simulate(load_config(overrides={"run.engine": "compiled", "learning.dataset": "digits"}))
    assert isinstance(simulate(asked).rounds, pa.Table)


@pytest.mark.parametrize("max_time_s", mostly_slow([0.6, 1.0], 0.6))
@pytest.mark.slow
def test_all_policies_in_one_process_choose_as_their_scans_do(monkeypatch: pytest.MonkeyPatch, max_time_s: float) -> None:
    """One after the other, also with code read from disk: none may end up with the functions of another."""
    shape = {"fleet.devices": 1500, "fleet.channels": 50, "run.rounds": 8000}
    goal = {"objective.max_time_s": max_time_s, "objective.min_mean_samples": 0.02, "policy.bonus_scale": 0.02}
    for name, mode in [("cu-ucb", "async"), ("queue-only", "async"), ("fairness", "async"), ("cu-ucb", "sync")]:
        config = load_config(overrides={**shape, **goal, "run.mode": mode, "policy.name": name})
        fleet, places, found = fleet_columns(config), ranks(config.run.seed, Purpose.TIES, 1500), []
        for index_from in (1, 10**9):
            monkeypatch.setattr(fast, "INDEX_FROM", index_from)
            played = fast.finish(config, fast.prepare(config, fleet, places))
            found.append((played.tally, played.clock_s, played.total_queue, played.trained.tolist()))
        assert found[0] == found[1], (name, mode)
