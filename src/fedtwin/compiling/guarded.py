"""The functions of ``math`` that compiled code computes with the same bits, made to raise where Python's raise.

They call the C library under names of our own: what LLVM knows as ``pow`` it replaces where an argument is constant, 2ˣ by
another function and x^½ by a root, which round otherwise.
"""

import ctypes
import ctypes.util
import math
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

CONSTANTS = ("inf", "nan", "pi", "e", "tau")
OF_THE_C_LIBRARY = {"log": 1, "log10": 1, "log1p": 1, "exp": 1, "expm1": 1, "sin": 1, "cos": 1, "pow": 2}
libm_log, libm_log10, libm_log1p, libm_exp = math.log, math.log10, math.log1p, math.exp
libm_expm1, libm_sin, libm_cos, libm_pow = math.expm1, math.sin, math.cos, math.pow


def sqrt(x: float) -> float:
    if x < 0.0:
        raise ValueError("math domain error")
    return math.sqrt(float(x))


def log(x: float) -> float:
    if x <= 0.0:
        raise ValueError("math domain error")
    return libm_log(float(x))


def log10(x: float) -> float:
    if x <= 0.0:
        raise ValueError("math domain error")
    return libm_log10(float(x))


def log1p(x: float) -> float:
    if x <= -1.0:
        raise ValueError("math domain error")
    return libm_log1p(float(x))


def exp(x: float) -> float:
    y = libm_exp(float(x))
    if math.isinf(y) and not math.isinf(float(x)):
        raise OverflowError("math range error")
    return y


def expm1(x: float) -> float:
    y = libm_expm1(float(x))
    if math.isinf(y) and not math.isinf(float(x)):
        raise OverflowError("math range error")
    return y


def sin(x: float) -> float:
    if math.isinf(float(x)):
        raise ValueError("math domain error")
    return libm_sin(float(x))


def cos(x: float) -> float:
    if math.isinf(float(x)):
        raise ValueError("math domain error")
    return libm_cos(float(x))


def pow(x: float, y: float) -> float:
    """Of floats also where the exponent is whole."""
    base, exponent = float(x), float(y)
    z = libm_pow(base, exponent)
    if math.isnan(z) and not math.isnan(base) and not math.isnan(exponent):
        raise ValueError("math domain error")
    if math.isinf(z) and not math.isinf(base) and not math.isinf(exponent):
        if base == 0.0:
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


MOST_FLOOR = 1e12


def floor(x: float) -> int:
    """Compiled whole numbers are 64 bits wide, so what is beyond a bound is refused; Python's go on without end."""
    if math.isnan(float(x)):
        raise ValueError("cannot convert float NaN to integer")
    if abs(float(x)) > MOST_FLOOR:
        raise OverflowError("math.floor of a number over 1e12")
    return math.floor(float(x))


def ceil(x: float) -> int:
    if math.isnan(float(x)):
        raise ValueError("cannot convert float NaN to integer")
    if abs(float(x)) > MOST_FLOOR:
        raise OverflowError("math.ceil of a number over 1e12")
    return math.ceil(float(x))


REAL = {"sqrt": 1, "log": 1, "log10": 1, "log1p": 1, "exp": 1, "expm1": 1, "sin": 1, "cos": 1, "pow": 2, "fabs": 1}
"""Functions that give a real number, with how many arguments they take."""
TRUTH = {"isnan": 1, "isinf": 1, "isfinite": 1}
WHOLE = {"floor": 1, "ceil": 1}
NAMES: dict[Any, str] = {getattr(math, name): name for name in (*REAL, *TRUTH, *WHOLE)}
"""Names of the functions by themselves, under whatever name they were imported."""


@cache
def compiled_function(name: str) -> Any:
    from numba import njit

    function: Any = globals()[name]
    names = {**globals(), **_symbols()}
    return njit(FunctionType(function.__code__, names, f"guarded_{name}"), error_model="python")


@cache
def _symbols() -> dict[str, Any]:
    """The C library's functions under our names; code that was compiled in another process finds them by these too."""
    from llvmlite import binding
    from numba.core import types

    library = ctypes.CDLL(ctypes.util.find_library("m"))
    found = {}
    for name, arguments in OF_THE_C_LIBRARY.items():
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        binding.add_symbol(f"fedtwin_{name}", address)
        found[f"libm_{name}"] = types.ExternalFunction(f"fedtwin_{name}", types.float64(*[types.float64] * arguments))
    return found


@cache
def compiled_math() -> ModuleType:
    """Stands in the place of ``math``."""
    module = ModuleType("math")
    for name in CONSTANTS:
        setattr(module, name, getattr(math, name))
    for name in (*REAL, *TRUTH, *WHOLE):
        setattr(module, name, compiled_function(name))
    return module
