"""What is said where a policy of the user's own fails: one sentence that leads to the line."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.config import load_config
from fedtwin.errors import FedtwinError
from fedtwin.policies import OraclePolicy, Policy, View
from fedtwin.policies.failures import as_number, score_of, sentence_of
from fedtwin.sim import simulate

VIEW = View(7, 3, 80.0, 1, 1, 0.4, 2.0, math.nan, math.nan)
HELPER = "def divide(a, b):\n    return a / b\n"
HEADER = "import math, sys, json\nfrom fedtwin.policies import OraclePolicy, Policy\n"


def run_policy(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str, **changes: Any) -> str:
    """Runs a policy whose score has this body, which starts in line 4; gives the sentence it ends with."""
    (folder / f"{name}.py").write_text(
        f"{HEADER}def score(view, knobs):\n{body}\nPOLICY = Policy(score, power='optimal')\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(folder))
    settings = {"policy.name": f"{name}:POLICY", "run.rounds": 20, "run.engine": "readable", **changes}
    with pytest.raises(FedtwinError) as caught:
        simulate(load_config(overrides=settings))
    return str(caught.value)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("    return 1 / (view.round - 3)", "ZeroDivisionError: division by zero"),
        ("    raise KeyError('press')", "KeyError: 'press'"),
        ("    return view.sample", "AttributeError: 'View' object has no attribute 'sample'"),
        ("    sys.exit()", "SystemExit"),
        ("    raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("    assert view.round < 1", "AssertionError"),
        ("    return score(view, knobs)", "RecursionError: maximum recursion depth exceeded"),
        ("    return json.loads('{')", "JSONDecodeError"),
        ("    return math.exp(1e6)", "OverflowError: math range error"),
        ("    raise type('Own', (Exception,), {'__str__': lambda self: 1 / 0})", "Own"),
    ],
)
def test_any_error_of_a_policy_is_one_sentence_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, says: str
) -> None:
    name = f"policy_of_{tmp_path.name}"
    sentence = run_policy(tmp_path, monkeypatch, name, body)
    assert f"policy.name = '{name}:POLICY'" in sentence and "in round" in sentence and "device" in sentence
    assert says in sentence and f"{tmp_path / name}.py, line 4" in sentence and "\n" not in sentence


def test_the_line_is_in_the_users_own_helper_where_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_helper.py").write_text(HELPER, encoding="utf-8")
    body = "    from own_helper import divide\n    return divide(1, 0)"
    sentence = run_policy(tmp_path, monkeypatch, "with_helper", body)
    assert f"{tmp_path / 'own_helper.py'}, line 2" in sentence


def test_a_score_that_cannot_be_called_so_is_found_by_its_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    return 0.0\ndef score(view):\n    return 0.0"
    sentence = run_policy(tmp_path, monkeypatch, "one_argument", body)
    assert "TypeError" in sentence and f"{tmp_path / 'one_argument.py'}, line 5" in sentence


def test_an_interruption_is_not_the_policys_error() -> None:
    def interrupted(*_: object) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_of("mine", interrupted, VIEW)


def test_a_long_message_is_cut() -> None:
    assert len(sentence_of("mine:POLICY", VIEW, ValueError("x" * 10_000))) < 1000


@pytest.mark.parametrize("score", [None, "1.0", 1j, (1.0,), [1.0], np.ones(1), np.array(1.0), np.complex128(1), {}, Decimal(1)])
def test_a_score_that_is_no_number_is_a_sentence_with_its_type(score: Any) -> None:
    with pytest.raises(TypeError) as caught:
        as_number(score)
    kind = type(score).__name__
    assert f"{kind}, not a number" in str(caught.value)


@pytest.mark.parametrize(
    ("score", "number"),
    [(3, 3.0), (True, 1.0), (np.float32(0.5), 0.5), (np.int64(-2), -2.0), (np.bool_(True), 1.0), (Fraction(1, 4), 0.25)],
)
def test_whatever_is_a_number_is_taken_as_a_float(score: Any, number: float) -> None:
    assert as_number(score) == number and type(as_number(score)) is float


def test_what_a_score_is_not_reaches_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = run_policy(tmp_path, monkeypatch, "forgot_to_return", "    view.samples * 2")
    assert "returned None (NoneType, not a number)" in sentence and f"{tmp_path / 'forgot_to_return.py'}, line 3" in sentence
    sentence = run_policy(tmp_path, monkeypatch, "too_large", "    return 10 ** 400 + view.device")
    assert "too large" in sentence and "int" in sentence and len(sentence) < 400


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_scores_that_are_all_nan_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, trace: bool) -> None:
    (tmp_path / "nan_later.py").write_text(
        f"{HEADER}def score(view, knobs):\n    return math.nan if view.round > 5 else 0.0\n"
        "POLICY = Policy(score, power='optimal')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = {"policy.name": "nan_later:POLICY", "run.mode": mode, "run.rounds": 200, "run.engine": "readable"}
    with pytest.raises(FedtwinError) as caught:
        simulate(load_config(overrides=settings), trace=trace)
    assert "policy.name = 'nan_later:POLICY'" in str(caught.value)
    assert "round 6" in str(caught.value) and "NaN" in str(caught.value)


def test_one_score_that_is_nan_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nan_for_some.py").write_text(
        f"{HEADER}def score(view, knobs):\n    return math.nan if view.device else 0.0\nPOLICY = Policy(score, power='max')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = {"policy.name": "nan_for_some:POLICY", "run.mode": "sync", "run.rounds": 200, "run.engine": "readable"}
    rows = simulate(load_config(overrides=settings)).rounds.to_pylist()
    firsts = {row["round"]: row["device"] for row in reversed(rows)}
    assert set(firsts.values()) == {0} and len(rows) == 200, "the others are taken after it, by rank"


def test_a_score_that_is_nan_for_want_of_telemetry_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "best_link.py").write_text(
        f"{HEADER}def score(view, knobs):\n    return -view.gain / view.compute_s\nPOLICY = Policy(score, power='max')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = {"policy.name": "best_link:POLICY", "run.mode": "sync", "run.rounds": 60, "run.engine": "readable"}
    assert simulate(load_config(overrides=settings)).summary.rounds == 60, "nobody's gain is known in the first round"


@pytest.mark.parametrize("kind", [Policy, OraclePolicy])
@pytest.mark.parametrize("power", ["min", "", None, "Optimal", ["max"]])
def test_an_unknown_power_rule_is_refused_where_the_policy_is_made(kind: Callable[..., object], power: Any) -> None:
    with pytest.raises(FedtwinError, match=r"power = .* is unknown: choose 'optimal' or 'max'"):
        kind(lambda *_: 0.0, power=power)


@pytest.mark.parametrize("kind", [Policy, OraclePolicy])
def test_a_score_that_cannot_be_called_is_refused_where_the_policy_is_made(kind: Callable[..., object]) -> None:
    with pytest.raises(FedtwinError, match=r"score = 3 .*int.* function"):
        kind(3, power="max")


def test_a_lead_that_cannot_be_called_is_refused_where_the_policy_is_made() -> None:
    with pytest.raises(FedtwinError, match=r"lead = 5 .*int.* function"):
        Policy(lambda *_: 0.0, power="max", lead=5)  # type: ignore[arg-type]
