"""What is compiled, and what is not, with the reason: one case each."""

import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtwin.compiling import compiled_as, why_not
from fedtwin.policies.base import Knobs, View
from fedtwin.sim.fast import steps
from fedtwin.usercode import load_object

HEAD = """import enum
import functools
import math
import numpy
from math import gamma, hypot, pow as power
from numpy import exp
from typing import NamedTuple
from numba import njit
import other
from other import A, half

LONG = tuple(range(100))
WIDE = 9223372036854775807

class Level(enum.IntEnum):
    HIGH = 3

class Options(NamedTuple):
    weight: float = 2.0

def recursive(n):
    return 1.0 if n < 1 else recursive(n - 1)

def may_end(x):
    if x > 1.0:
        return x

def no_number(x):
    return (x, x)

def starred(*many):
    return many[0]

@njit
def compiled_already(x):
    return x * 2.0

@functools.cache
def cached(x):
    return x * 2.0

def wrapper(function):
    def inner(x):
        return function(x) + 1.0
    return inner

@wrapper
def decorated(x):
    return x * 2.0

"""
KNOBS = Knobs(1e5, 1.0, 7, 1.0)
VIEW = View(12, 3, 85.0, 4, 4, 0.5, 11.5, 1e-11, 0.2)


def score_of(folder: Path, body: str, a: str = "1.5") -> Any:
    (folder / "other.py").write_text(f"import enum, numpy\nA = {a}\ndef half(x):\n    return x / 2\n")
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (folder / "mine.py").write_text(f"{HEAD}def score(view, knobs):\n{lines}\n")
    return load_object("policy.name", "mine:score", folder)


UNDERSTOOD = [
    "return -view.queue * A",
    "return half(view.queue) + half(x=2.0)",
    "return math.pow(view.queue, 3)",
    "return power(view.round, 2)",
    "return max(view.mean_cost - 0.5, 0)",
    "return decorated(view.queue)",
    "if view.observations and view.queue > 1.0:\n    return 1\nreturn view.queue",
    "total = 0.0\nfor k in range(view.device + 1):\n    total += k * view.queue\nreturn total",
    "x, y = view.queue, view.samples\nwhile x > y:\n    x = x / 2\nreturn x",
    "return (1.0, 2.0, 4.0)[view.device % 3]",
    "return (view.queue > 2.0) * view.samples",
    "return view.round // 7 + view.round % 5 + view.queue // 3.0 + view.queue % 0.7",
    "return float(view.selections) if math.isnan(view.gain) else math.log1p(view.gain)",
    "return math.floor(-view.queue / 3.0) * 2 + math.ceil(view.queue) % 7",
]


@pytest.mark.parametrize("body", UNDERSTOOD)
def test_what_is_understood_has_the_same_bits(tmp_path: Path, body: str) -> None:
    score = score_of(tmp_path, body)
    assert why_not(score, steps.score_of_policy) is None
    fast = compiled_as(score, steps.score_of_policy)
    for view in (VIEW, VIEW._replace(queue=0.1, gain=math.nan), VIEW._replace(round=10**12, observations=0)):
        assert struct.pack("<d", fast(view, KNOBS)) == struct.pack("<d", float(score(view, KNOBS)))


REFUSED = [
    ("return view.queue ** 3", r"uses \*\*"),
    ("return (lambda q: q ** 3)(view.queue)", "Lambda|lambda"),
    ("return hypot(view.queue, 1.0)", "calls hypot"),
    ("return gamma(view.queue)", "calls gamma"),
    ("return exp(view.queue)", "calls exp"),
    ("return numpy.tanh(view.queue)", "numpy.tanh"),
    ("return math.gamma(view.queue)", r"math\.gamma"),
    ("return other.A * view.queue", "only math is looked into"),
    ("return Level.HIGH * view.queue", "Level.HIGH"),
    ("return Options().weight * view.queue", "Options"),
    ("return recursive(3)", "calls itself"),
    ("return may_end(view.queue)", "without a return"),
    ("return no_number(view.queue)", "does not give a number"),
    ("return starred(view.queue)", "keyword-only"),
    ("return compiled_already(view.queue)", "compiled_already"),
    ("return cached(view.queue)", "cached"),
    ("return sum([view.queue, 1.0])", "sum|List"),
    ("return view.round * 10 ** 18", r"\*\*"),
    ("return view.round * 1000000000 * 1000000000", "64 bits"),
    ("return view.round * 1000000 * 1.5", r"2\*\*53"),
    ("return knobs.seed * 1.0", r"2\*\*53"),
    ("n = 0\nwhile n < 3:\n    n += 1\nreturn n * 1.0", "grows in a loop"),
    ("if view.queue > 1.0:\n    x = 1.0\nreturn x", "before it is set"),
    ("return -(0 if view.queue > 1.0 else view.queue)", "write 0.0"),
    (
        "n = 0.0\nfor i in range(-9223372036854775807, 9223372036854775807, 4611686018427387904):\n    n += 1.0\nreturn n",
        "range",
    ),
    ("n = 0.0\nfor i in range(-WIDE, WIDE, 4):\n    n += 1.0\nreturn n", "range"),
    ("return int(view.queue)", r"int\(\)"),
    ("return LONG[view.device]", "LONG"),
    ("return view[6]", "an item of a View"),
    ("return view._replace(queue=1.0).queue", "not for compiled code"),
    ("try:\n    return 1.0 / view.queue\nexcept ZeroDivisionError:\n    return 0.0", "Try"),
    ("import math as m\nreturn m.sqrt(view.queue)", "Import"),
    ("global A\nA = 2.0\nreturn A", "Global"),
    ("return [view.queue for _ in range(3)][0]", "ListComp"),
    ("return view.queue if view.queue is not None else 0.0", "NoneType|operator"),
]


@pytest.mark.parametrize(("body", "reason"), REFUSED)
def test_what_is_not_understood_is_refused_with_its_reason(tmp_path: Path, body: str, reason: str) -> None:
    import re

    found = why_not(score_of(tmp_path, body), steps.score_of_policy)
    assert found is not None and re.search(reason, found), found


@pytest.mark.parametrize(
    "value", ["numpy.int64(1)", "numpy.float64(1.0)", "numpy.float32(1.0)", "1 + 2j", "2**70", "numpy.zeros(3)", "None", "'a'"]
)
def test_only_numbers_of_pythons_own_are_constants(tmp_path: Path, value: str) -> None:
    reason = why_not(score_of(tmp_path, "return -view.queue * A", value), steps.score_of_policy)
    assert reason is not None and "it uses A, a" in reason


def test_a_score_that_is_no_plain_function_is_refused() -> None:
    assert "no plain function" in str(why_not(max, steps.score_of_policy))


@given(st.floats(-1e3, 1e3), st.integers(-20, 20))
def test_powers_with_whole_exponents_have_the_bits_of_pythons(base: float, exponent: int) -> None:
    from fedtwin.compiling.guarded import compiled_function

    fast = compiled_function("pow")
    try:
        expected = math.pow(base, exponent)
    except (ValueError, OverflowError) as error:
        with pytest.raises((ValueError, OverflowError), match=str(error)):
            fast(base, exponent)
        return
    assert struct.pack("<d", fast(base, exponent)) == struct.pack("<d", expected)


@pytest.mark.parametrize("power", ["q, 0.5", "q, -1", "q, -1.0", "2.0, q", "2, q", "4.0, q", "q, 2", "q, 3", "10.0, q"])
def test_powers_of_constants_are_not_folded_into_others(tmp_path: Path, power: str) -> None:
    score = score_of(tmp_path, f"q = view.mean_cost\nreturn math.pow({power})")
    fast = compiled_as(score, steps.score_of_policy)
    views = [VIEW._replace(mean_cost=k / 7919) for k in range(1, 7919, 3)]
    assert [fast(view, KNOBS) for view in views] == [score(view, KNOBS) for view in views]


@pytest.mark.parametrize("name", ["floor", "ceil"])
def test_whole_numbers_below_and_above_are_pythons_or_refused(name: str) -> None:
    from fedtwin.compiling.guarded import compiled_function

    fast, plain = compiled_function(name), getattr(math, name)
    for x in (0.0, -0.0, 0.5, -0.5, 1e12, -1e12, 999_999_999_999.5, 5e-324, -5e-324):
        assert fast(x) == plain(x) and type(fast(x)) is int
    for x in (1.1e12, -1e13, math.inf, -math.inf):
        with pytest.raises(OverflowError):
            fast(x)
    with pytest.raises(ValueError, match="NaN"):
        fast(math.nan)


@pytest.mark.parametrize("name", ["sqrt", "log", "log10", "log1p", "exp", "expm1", "sin", "cos", "fabs", "isnan", "isinf"])
def test_guarded_functions_fail_where_pythons_do(name: str) -> None:
    from fedtwin.compiling.guarded import compiled_function

    fast, plain = compiled_function(name), getattr(math, name)
    for x in (0.0, -0.0, 1.0, -1.0, -2.0, 710.0, 1e308, math.inf, -math.inf, math.nan, 5e-324, -1e-320):
        try:
            expected = plain(x)
        except (ValueError, OverflowError) as error:
            with pytest.raises(type(error)):
                fast(x)
            continue
        found = fast(x)
        assert found == expected or (math.isnan(found) and math.isnan(expected)), x
