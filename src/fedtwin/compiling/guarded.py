"""The functions of ``math`` that compiled code computes with the same bits, made to raise where Python's raise."""

import math
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

CONSTANTS = ("inf", "nan", "pi", "e", "tau")


def sqrt(x: float) -> float:
    if x < 0.0:
        raise ValueError("math domain error")
    return math.sqrt(x)


def log(x: float) -> float:
    if x <= 0.0:
        raise ValueError("math domain error")
    return math.log(x)


def log10(x: float) -> float:
    if x <= 0.0:
        raise ValueError("math domain error")
    return math.log10(x)


def log1p(x: float) -> float:
    if x <= -1.0:
        raise ValueError("math domain error")
    return math.log1p(x)


def exp(x: float) -> float:
    y = math.exp(x)
    if math.isinf(y) and not math.isinf(x):
        raise OverflowError("math range error")
    return y


def expm1(x: float) -> float:
    y = math.expm1(x)
    if math.isinf(y) and not math.isinf(x):
        raise OverflowError("math range error")
    return y


def sin(x: float) -> float:
    if math.isinf(x):
        raise ValueError("math domain error")
    return math.sin(x)


def cos(x: float) -> float:
    if math.isinf(x):
        raise ValueError("math domain error")
    return math.cos(x)


def pow(x: float, y: float) -> float:
    """Of floats also where the exponent is whole: compiled code multiplies otherwise, and rounds otherwise."""
    z = math.pow(float(x), float(y))
    if math.isnan(z) and not math.isnan(x) and not math.isnan(y):
        raise ValueError("math domain error")
    if math.isinf(z) and not math.isinf(x) and not math.isinf(y):
        if x == 0.0:
            raise ValueError("math domain error")
        raise OverflowError("math range error")
    return z


def fabs(x: float) -> float:
    return math.fabs(float(x))


def isnan(x: float) -> bool:
    return math.isnan(float(x))


def isinf(x: float) -> bool:
    return math.isinf(float(x))


def isfinite(x: float) -> bool:
    return math.isfinite(float(x))


REAL = {"sqrt": 1, "log": 1, "log10": 1, "log1p": 1, "exp": 1, "expm1": 1, "sin": 1, "cos": 1, "pow": 2, "fabs": 1}
"""Functions that give a real number, with how many arguments they take."""
TRUTH = {"isnan": 1, "isinf": 1, "isfinite": 1}
NAMES: dict[Any, str] = {getattr(math, name): name for name in (*REAL, *TRUTH)}
"""Names of the functions by themselves, under whatever name they were imported."""


@cache
def compiled_function(name: str) -> Any:
    from numba import njit

    function: Callable[..., Any] = globals()[name]
    return njit(function, error_model="python")


@cache
def compiled_math() -> ModuleType:
    """Stands in the place of ``math``."""
    module = ModuleType("math")
    for name in CONSTANTS:
        setattr(module, name, getattr(math, name))
    for name in (*REAL, *TRUTH):
        setattr(module, name, compiled_function(name))
    return module
