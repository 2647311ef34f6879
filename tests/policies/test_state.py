"""Policies with settings, a state and predictions: the same rows in both engines, and one sentence for what is wrong."""

import math
from pathlib import Path
from typing import Any

import pytest

from fedtwin import simulate
from fedtwin.config import config_hash, load_config
from fedtwin.config.load import parse_assignment
from fedtwin.errors import FedtwinError
from fedtwin.policies import Policy, View
from fedtwin.policies.base import CHANGES_BY_ITSELF
from fedtwin.sim import Result
from fedtwin.testing import check_policy
from tests.conftest import Cli, mostly_slow

POLICY = """
import math
from typing import Annotated, NamedTuple

from pydantic import Field

from fedtwin.policies import Policy


class Settings(NamedTuple):
    memory: Annotated[float, Field(gt=0, le=1)] = 0.3
    shyness: float = 0.1
    whole: int = 2
    careful: bool = True


class State(NamedTuple):
    cost: float = math.nan
    refusals: float = 0.0
    last_round: float = 0.0


def observe(state, news, knobs):
    own = knobs.settings
    if news.declined:
        return State(state.cost, state.refusals + 1.0, float(news.round))
    if math.isnan(news.cost):
        return state
    old = news.cost if math.isnan(state.cost) else state.cost
    blend = news.time_s + news.energy_j - news.time_s - news.energy_j
    return State(old + own.memory * (news.cost - old) + blend, 0.0, float(news.round))


def score(view, knobs):
    state, own, prediction = view.state, knobs.settings, view.prediction
    learned = 0.0 if math.isnan(state.cost) else state.cost
    predicted = prediction.cost if prediction.feasible else learned
    cost = min(learned, predicted) if own.careful else learned
    waited = (view.round - state.last_round) * 0.001
    age = 0.0 if math.isnan(view.gain_age_s) else view.gain_age_s
    shy = own.shyness * state.refusals - waited * own.whole
    return knobs.v * (cost + shy) - view.queue * view.samples + age + view.staleness


POLICY = Policy(score, power="optimal", settings=Settings, state=State, observe=observe, predicts=True)
"""
TOML = """
[policy]
name = "stately:POLICY"
[policy.settings]
memory = 0.5
[fleet]
devices = 8
channels = 3
[objective]
max_time_s = 0.8
[run]
rounds = 150
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stately.py").write_text(POLICY)
    (tmp_path / "mine.toml").write_text(TOML)
    return tmp_path


def both(folder: Path, **changes: Any) -> Result:
    one, other = (
        simulate(load_config(folder / "mine.toml", {"run.engine": engine, **changes})) for engine in ("readable", "compiled")
    )
    assert one.rounds.equals(other.rounds) and one.summary == other.summary
    return one


@pytest.mark.parametrize("mode", mostly_slow(["async", "sync"]))
def test_both_engines_hold_the_same_states(folder: Path, mode: str) -> None:
    runs = [both(folder, **{"run.mode": mode})]
    assert any(runs[0].rounds["declined"].to_pylist()), "the state hears of declines"
    changes = ({"policy.feedback": "on-arrival"}, {"policy.settings.memory": 0.1}, {"policy.settings.careful": False})
    runs += [both(folder, **{"run.mode": mode, **settings}) for settings in changes]
    scores = {tuple(result.rounds["index"].to_pylist()) for result in runs}
    assert len(scores) == (4 if mode == "async" else 3), "sync learns when a round ends, whatever the feedback"


def test_settings_and_code_are_a_part_of_the_hash(folder: Path) -> None:
    first = config_hash(load_config(folder / "mine.toml"))
    assert config_hash(load_config(folder / "mine.toml", {"policy.settings.memory": 0.4})) != first
    (folder / "stately.py").write_text(POLICY.replace("shyness: float = 0.1", "shyness: float = 0.2"))
    assert config_hash(load_config(folder / "mine.toml")) != first


@pytest.mark.slow
def test_it_passes_its_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "my_stately.py").write_text(POLICY)
    monkeypatch.syspath_prepend(str(folder))
    compiled, why_not = check_policy("my_stately:POLICY", {"whole": 3})
    assert compiled, why_not


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("policy.settings.memmory=1", "policy.settings.memmory is not a setting (did you mean memory?)"),
        ("policy.settings.memory=0", "policy.settings.memory = 0 is not allowed: it must be greater than 0."),
        ("policy.settings.memory=text", "policy.settings.memory = 'text' is not allowed"),
        ("policy.settings.memory=inf", "policy.settings.memory = inf is not allowed"),
        (
            "policy.settings.memory=true",
            "policy.settings.memory = True is not allowed: it must be a number, not true or false.",
        ),
        ("policy.settings.whole=1.5", "policy.settings.whole = 1.5 is not allowed"),
        ("policy.settings.whole=10000000000000", "policy.settings.whole = 10000000000000 is not allowed: it must be a whole"),
        ("policy.settings=3", "policy.settings = 3 is not allowed"),
        ("policy.name=cu-ucb", "policy.settings.memory is not a setting: what is chosen there has no settings."),
    ],
)
def test_bad_settings_are_one_sentence(folder: Path, setting: str, sentence: str) -> None:
    with pytest.raises(FedtwinError) as told:
        simulate(load_config(folder / "mine.toml", dict([parse_assignment(setting)])))
    assert sentence in str(told.value) and "\n" not in str(told.value)


def test_on_the_command_line_it_is_exit_code_2(cli: Cli, folder: Path) -> None:
    done = cli("run", folder / "mine.toml", "--set", "policy.settings.memory=0")
    assert done.returncode == 2
    assert done.stderr == "error: policy.settings.memory = 0 is not allowed: it must be greater than 0.\n"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("predicts=True", "predicts=False", "looks for 'feasible' in what its Policy does not declare: view.prediction needs"),
        ("settings=Settings, ", "", "what is chosen there has no settings"),
        ("return State(state.cost, state.r", "return (state.cost, state.r", "gave a tuple, not a State"),
        ("if news.declined:", "if 1.0 / (1.0 - float(news.declined)) < 0.0:", "ZeroDivisionError"),
    ],
)
def test_a_broken_policy_is_one_sentence(folder: Path, old: str, new: str, sentence: str) -> None:
    assert old in POLICY
    (folder / "stately.py").write_text(POLICY.replace(old, new))
    with pytest.raises(FedtwinError) as told:
        simulate(load_config(folder / "mine.toml"))
    assert sentence in str(told.value) and "\n" not in str(told.value)


def never(ahead: Any, behind: Any, gap: float, knobs: Any) -> float:  # noqa: ARG001
    return math.inf


@pytest.mark.parametrize("name", CHANGES_BY_ITSELF)
def test_a_lead_over_what_changes_by_itself_is_refused_by_name(name: str) -> None:
    functions: dict[str, Any] = {}
    exec(f"def score(view, knobs):\n    return helper(view)\ndef helper(view):\n    return view.{name}\n", functions)
    with pytest.raises(FedtwinError, match=f"A policy that looks at {name} cannot have a lead: leave lead out"):
        Policy(functions["score"], power="optimal", lead=never)
    Policy(functions["score"], power="optimal")


def test_a_lead_over_what_changes_by_itself_is_refused_in_a_closure_too() -> None:
    def helper(view: View) -> float:
        return view.gain

    def score(view: View, knobs: Any) -> float:  # noqa: ARG001
        return helper(view)

    with pytest.raises(FedtwinError, match="A policy that looks at gain cannot have a lead"):
        Policy(score, power="optimal", lead=never)


def test_what_a_policy_does_not_declare_is_not_computed() -> None:
    def score(view: View, knobs: Any) -> float:  # noqa: ARG001
        if view.prediction != () or view.state != ():
            raise ValueError(view)
        return float(view.selections)

    simulate({"run.rounds": 5, "run.engine": "readable"}, policy=Policy(score, power="max"), records=False)
