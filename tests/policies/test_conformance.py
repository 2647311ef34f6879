"""Every registered policy gets these for free."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.config import Config, load_config
from fedtwin.errors import FedtwinError
from fedtwin.formulas.power import optimal_plan
from fedtwin.formulas.terms import terms_of
from fedtwin.policies import Knobs, OraclePolicy, Policy, View, load_policy, power_rule, scheme_name
from fedtwin.prediction import predict
from fedtwin.registry import POLICIES, SCHEMES
from fedtwin.sim import Result, simulate
from fedtwin.testing import Engines, check_policy
from tests.conftest import mostly_slow

KNOBS = Knobs(v=1e5, bonus_scale=1.0, seed=3, min_mean_samples=1.0)
VIEWS = st.builds(
    View,
    round=st.integers(1, 10**9),
    device=st.integers(0, 10**6),
    samples=st.floats(1, 1e6),
    selections=st.integers(0, 10**6),
    observations=st.integers(0, 10**6),
    mean_cost=st.floats(0, 10),
    queue=st.floats(0, 1e9),
    gain=st.one_of(st.just(math.nan), st.floats(1e-20, 1)),
    compute_s=st.one_of(st.just(math.nan), st.floats(1e-3, 10)),
    gain_age_s=st.one_of(st.sampled_from([math.nan, 0.0]), st.floats(0, 1e6)),
    compute_age_s=st.one_of(st.just(math.nan), st.floats(0, 1e6)),
    staleness=st.integers(0, 10**9),
    train_loss=st.one_of(st.just(math.nan), st.floats(0, 100)),
    prediction=st.builds(
        predict,
        st.just(optimal_plan),
        st.just(terms_of(Config())),
        st.one_of(st.just(math.nan), st.floats(1e-20, 1)),
        st.one_of(st.just(math.nan), st.floats(1e8, 4e9)),
        st.floats(1, 500),
    ),
    state=st.just(()),
)
every_policy = pytest.mark.parametrize("name", POLICIES)
every_mode = pytest.mark.parametrize("mode", ["async", "sync"])


def scored(name: str, view: View, true_cost: float = 0.4) -> float:
    policy = load_policy(name)
    return policy.score(view, true_cost, KNOBS) if isinstance(policy, OraclePolicy) else policy.score(view, KNOBS)


def small_run(name: str, mode: str = "async", **changes: Any) -> Result:
    settings = {"policy.name": name, "run.mode": mode, "run.rounds": 240, "fleet.devices": 8, "fleet.channels": 4}
    return simulate(load_config(overrides={**settings, **changes}), trace=True)


@every_policy
@given(view=VIEWS)
def test_a_score_is_a_number_and_a_pure_function(name: str, view: View) -> None:
    score = scored(name, view)
    assert isinstance(score, float) and not math.isnan(score)
    assert scored(name, view) == score


@pytest.mark.parametrize("name", mostly_slow(POLICIES, "cu-ucb"))
def test_it_keeps_the_word_that_every_policy_gives(name: str) -> None:
    assert check_policy(name) == Engines(compiled=True, why_not=None)


@every_policy
@every_mode
def test_a_run_is_deterministic(name: str, mode: str) -> None:
    assert small_run(name, mode).rounds.equals(small_run(name, mode).rounds)


@every_policy
@every_mode
def test_the_choice_is_the_available_device_of_least_index(name: str, mode: str) -> None:
    result = small_run(name, mode, **{"objective.max_time_s": 0.8})
    ranks = result.devices["tie_rank"].to_pylist()
    rows = result.rounds.to_pylist()
    assert rows
    for row in rows:
        candidates = [n for n in range(8) if row["available"][n]]
        assert row["device"] == min(candidates, key=lambda n: (row["indices"][n], ranks[n]))
        assert row["index"] == row["indices"][row["device"]]
        assert row["queue"] == row["queues"][row["device"]]
        assert row["total_queue"] == pytest.approx(math.fsum(row["queues"]), rel=1e-12, abs=1e-9)


@every_policy
def test_every_device_gets_its_turn(name: str) -> None:
    chosen = {row["device"] for row in small_run(name).rounds.to_pylist() if not row["declined"]}
    assert chosen == set(range(8))


@every_policy
@every_mode
def test_a_feasible_c1_is_met_by_the_policies_that_look_at_queues(name: str, mode: str) -> None:
    largest = 4 if mode == "sync" else 1
    asked = 5.0 * largest
    changes = {"run.rounds": 6000, "objective.min_mean_samples": asked, "fleet.channels": 4}
    summary = small_run(name, mode, **changes).summary
    if name in ("cu-ucb", "queue-only", "genie"):
        assert summary.least_mean_samples > 0.97 * asked
    assert summary.rounds == 6000


@every_policy
def test_power_follows_the_rule_and_records_say_so(name: str) -> None:
    for power in ("scheme", "optimal", "max"):
        changes: dict[str, Any] = {"policy.power": power, "objective.max_time_s": 0.55}
        result = small_run(name, **changes)
        rule = power_rule(result.config)
        assert rule == (load_policy(name).power if power == "scheme" else power)
        rows = result.rounds.to_pylist()
        if rule == "max":
            assert {row["power_w"] for row in rows} == {1.0} and not any(row["declined"] for row in rows)
            late = [row["compute_s"] + row["upload_s"] > 0.55 * (1 + 1e-9) for row in rows]
            assert [not row["time_ok"] for row in rows] == late
            assert result.summary.time_violations == sum(late)
            assert any(late) or name == "genie"
        else:
            assert all(row["time_ok"] and row["energy_ok"] for row in rows)
            assert len({row["power_w"] for row in rows}) > 100


def test_only_the_genie_sees_the_truth() -> None:
    assert [name for name in POLICIES if isinstance(load_policy(name), OraclePolicy)] == ["genie"]


def test_the_paper_pairs_policies_with_power_as_the_docs_say() -> None:
    paired = {scheme.policy for scheme in SCHEMES.values()} | {"genie"}
    assert {name: load_policy(name).power for name in POLICIES if name in paired} == {
        "cu-ucb": "optimal",
        "queue-only": "optimal",
        "fairness": "max",
        "random": "max",
        "genie": "optimal",
    }


@pytest.mark.parametrize("name", SCHEMES)
def test_schemes_are_named_both_ways(name: str) -> None:
    assert scheme_name(load_config(overrides={"policy.name": name})) == name


def test_combinations_without_a_name_in_the_paper_say_what_they_are() -> None:
    assert scheme_name(load_config(overrides={"policy.name": "Random", "policy.power": "optimal"})) == "Random (optimal power)"
    assert scheme_name(load_config(overrides={"policy.name": "cu-ucb", "run.mode": "sync"})) == "cu-ucb (sync)"


def test_a_policy_of_ones_own_is_found_by_module_and_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from fedtwin.policies import Policy\nPOLICY = Policy(lambda view, knobs: -view.samples, power='optimal')\nOTHER = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert small_run("mine:POLICY").summary.rounds == 240
    with pytest.raises(FedtwinError, match="is a int, not a"):
        load_policy("mine:OTHER")
    with pytest.raises(FedtwinError, match="cannot be loaded"):
        load_policy("mine:NOTHING")
    with pytest.raises(FedtwinError, match="cannot be loaded"):
        load_policy("no.such.module:POLICY")


def test_policies_are_data_in_the_registry() -> None:
    json.dumps(POLICIES)
    assert all(isinstance(load_policy(name), Policy | OraclePolicy) for name in POLICIES)
    assert Config().policy.name in POLICIES
