"""Policies as a user might write them, made up at random: two modules, with constants, closures, imports of every kind."""

import math
import random
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fedtwin.policies.base import Knobs, View

FIELDS = [*View._fields, "queue", "mean_cost", "samples", "observations"]
PLAIN = ["0", "1", "2", "7", "-1", "0.0", "1.0", "0.5", "1e-3", "2.5", "-0.0", "100", "True", "1e300"]
STRANGE = [
    *("numpy.int64(3)", "numpy.float32(0.1)", "numpy.float64(0.25)", "numpy.bool_(True)", "numpy.array([1.0, 2.0])"),
    *("Level.HIGH", "1 + 2j", "2**70", "Fraction(1, 3)", "None", "'text'", "(1.0, numpy.zeros(2000))", "[1.0]", "{1: 2}"),
    *("Options(3.0)", "Box", "HELPED.real"),
]
DECORATORS = ["same", "wrapped", "functools.cache", "njit", "functools.partial"]
HEAD = """import enum
import functools
import math
from collections import namedtuple
from fractions import Fraction
from math import gamma, hypot, sqrt as root
from typing import NamedTuple

import numpy
from numba import njit
from numpy import exp as numpy_exp

from fedtwin.policies import Policy
from fedtwin.policies.base import rounds_ahead
from fedtwin.policies.cu_ucb import optimistic_cost
from helper_module import HELPED, helped


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Options(NamedTuple):
    weight: float = 2.0


class Box:
    weight = 3.0


def same(function):
    return function


def wrapped(function):
    def inner(x, y=2.0):
        return function(x, y) + 1.0

    return inner

"""


@dataclass(frozen=True)
class Program:
    """The text of both modules, and the constant that can be changed without changing anything else."""

    source: str
    helper: str

    def write(self, folder: Path) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "users_policy.py").write_text(self.source, encoding="utf-8")
        (folder / "helper_module.py").write_text(self.helper, encoding="utf-8")
        return "users_policy:POLICY"

    def with_other_constant(self) -> "Program":
        return Program(self.source, self.helper.replace("HELPED = 1.5", "HELPED = 2.5"))


class Writer:
    """Draws a program. About every second one has something in it that compiled code does not understand."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._strange = draw.random() < 0.45

    def program(self) -> Program:
        draw = self._draw
        constants = [f"A = {self._constant()}", f"B = {draw.choice(PLAIN)}", "WEIGHTS = (0.5, 1.25, -3.0, 1e-9)"]
        helper = [
            "import math",
            "HELPED = 1.5",
            "def helped(x, y=2.0):",
            f"    return {draw.choice(['x * y + HELPED', 'math.fabs(x) - y * HELPED', 'max(x, y) / HELPED'])}",
        ]
        own = self._own_function()
        score = self._score()
        closing = draw.choice(["behind.samples - ahead.samples", "HELPED + 1e9", "abs(ahead.queue - behind.queue)", "A * 1.0"])
        lead = ["def lead(ahead, behind, gap, knobs):", f"    return rounds_ahead(gap, {closing}, own(gap), knobs.v)"]
        make = ["POLICY = Policy(score, power='max')"]
        return Program(HEAD + "\n".join([*constants, *own, *score, *lead, *make]) + "\n", "\n".join(helper) + "\n")

    def _constant(self) -> str:
        return self._draw.choice(STRANGE if self._strange and self._draw.random() < 0.4 else PLAIN)

    def _own_function(self) -> list[str]:
        draw = self._draw
        body = draw.choice(["x * y + B", "x / y", "x - y if x > y else y * 1.0", "root(abs(x)) + y", "HELPED * x"])
        lines = ["def own(x, y=2.0):", f"    return {body}"]
        if draw.random() < 0.2:
            lines = [f"own = lambda x, y=2.0: {body}"]
        if draw.random() < (0.5 if self._strange else 0.15):
            chosen = draw.choice(DECORATORS if self._strange else DECORATORS[:2])
            lines = [f"@{chosen}", *lines] if lines[0].startswith("def") else [*lines, f"own = {chosen}(own)"]
        return lines

    def _score(self) -> list[str]:
        draw = self._draw
        names, lines = ["A", "B"], []
        for k in range(draw.randrange(3)):
            lines.append(f"v{k} = {self._expression(2, names)}")
            names.append(f"v{k}")
        if draw.random() < 0.25:
            turns, more = draw.choice(["3", "view.device % 4"]), draw.choice(["i * 1.5", "WEIGHTS[i % 4]", "B * 1.0"])
            lines += ["total = 0.0", f"for i in range({turns}):", f"    total += {more}"]
            names.append("total")
        if draw.random() < 0.25:
            lines += [f"if {self._expression(1, names)} > {self._expression(1, names)}:", "    w = 1.0", "else:"]
            lines.append(f"    w = {self._expression(1, names)} * 1.0")
            names.append("w")
        if self._strange and draw.random() < 0.7:
            lines.append(f"s = {self._strange_expression()}")
            names.append("s")
        lines.append(f"return {self._expression(3, names)}")
        if draw.random() < 0.25:  # through a closure
            free = draw.choice(["math", "root", "1.5", "helped", "hypot" if self._strange else "math"])
            use = {"math": "free.sqrt(2.0)", "1.5": "free", "helped": "free(1.0)", "hypot": "free(1.0, 2.0)"}.get(
                free, "free(2.0)"
            )
            inside = [f"        {line}" for line in lines[:-1]] + [f"        return {use} + {lines[-1][7:]}"]
            return ["def make(free):", "    def score(view, knobs):", *inside, "    return score", f"score = make({free})"]
        return ["def score(view, knobs):", *(f"    {line}" for line in lines)]

    def _strange_expression(self) -> str:
        return self._draw.choice(
            [
                *("view.queue ** 3", "(lambda q: q ** 3)(view.queue)", "hypot(view.queue, 1.0)", "gamma(1.5)"),
                *("numpy_exp(0.5)", "numpy.tanh(view.queue)", "float(len([x for x in range(3)]))", "Level.HIGH * 1.0"),
                *("Options().weight", "Box.weight", "view[5]", "float(str(1))", "sum(WEIGHTS)", "round(view.queue, 2)"),
                *("view._replace(queue=1.0).queue", "int(view.queue)", "math.floor(view.queue)", "view.round * 10 ** 17"),
                *("math.pow(view.queue, 3)", "divmod(view.queue, 3.0)[1]", "math.log(7.0, 2)", "view.device.bit_length()"),
            ]
        )

    def _expression(self, depth: int, names: list[str]) -> str:
        draw = self._draw
        if depth <= 0 or draw.random() < 0.15:
            return draw.choice([draw.choice(PLAIN), f"view.{draw.choice(FIELDS)}", "knobs.v", "knobs.min_mean_samples", *names])
        one, other = self._expression(depth - 1, names), self._expression(depth - 1, names)
        compared = f"{one} {draw.choice(['<', '<=', '==', '!=', '>'])} {other}"
        return draw.choice(
            [
                *(f"({one} {sign} {other})" for sign in ("+", "-", "*", "/", "//", "%")),
                *(f"(-{one})", f"{draw.choice(['min', 'max'])}({one}, {other})", f"({one} if {compared} else {other})"),
                f"math.{draw.choice(['sqrt', 'log', 'log1p', 'exp', 'sin', 'cos', 'fabs', 'expm1', 'log10'])}({one})",
                *(f"math.pow({one}, {other})", f"({one} {draw.choice(['and', 'or'])} {other})", f"abs({one})"),
                *(f"own({one}, {other})", f"helped({one})", f"own(y={one}, x={other})", f"float({one})"),
                f"optimistic_cost(view.round, view.observations, {one} * 1.0, 1.0)",
            ]
        )


def programs() -> st.SearchStrategy[Program]:
    return st.integers(0, 2**63 - 1).map(lambda seed: Writer(random.Random(seed)).program())


def random_view(draw: random.Random) -> View:
    observations = draw.choice([0, 1, 2, 50, 10**6])
    return View(
        draw.choice([1, 2, 100, 10**6, 10**12]),
        draw.choice([0, 1, 5, 10**6]),
        float(draw.choice([70, 100, 85, 1])),
        observations,
        observations,
        draw.choice([0.0, draw.uniform(0, 1)]),
        draw.choice([0.0, draw.uniform(0, 1e5)]),
        draw.choice([math.nan, draw.uniform(0, 1e-8)]),
        draw.choice([math.nan, draw.uniform(0, 1)]),
    )


def random_knobs(draw: random.Random) -> Knobs:
    return Knobs(draw.choice([0.0, 1e5]), draw.choice([0.0, 1.0]), draw.choice([0, 3, 2**62]), draw.choice([0.0, 1.0, 2.7]))


def outcome(function: Any, *arguments: Any) -> Any:
    """The bits of what comes out, or that it failed."""
    try:
        value = float(function(*arguments))
    except Exception as error:
        return "failed" if isinstance(error, ArithmeticError | ValueError | IndexError) else type(error)
    return "nan" if math.isnan(value) else struct.pack("<d", value)
