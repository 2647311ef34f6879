"""Plain functions, compiled as they are (Numba), so that a formula is written once and serves every engine with the same bits.

``compiled`` takes a function and whatever functions of ours it calls; there are no decorators on the formulas, and nothing
here is imported where nothing is compiled. Floating point is strict: no reordering, no fused operations, and the mathematical
functions are those of the C library that Python's ``math`` calls as well. What compiled code computes otherwise than Python
does (powers by ``**``, NumPy's functions) is refused.
"""

import dis
import hashlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

import numpy as np

from fedtwin import __version__, draws
from fedtwin.errors import CannotCompileError, FedtwinError

Plain = Callable[..., Any]
SAME_MATH = frozenset(("sqrt", "log", "log1p", "log10", "exp", "expm1", "sin", "cos", "pow", "floor", "ceil", "fabs"))
SAME_MATH |= {"isnan", "isinf", "isfinite", "inf", "nan", "pi", "e", "tau"}
SAME_BUILTINS = frozenset(["abs", "min", "max", "float", "int", "bool", "len", "range", "NotImplementedError"])
FORMAT = 2
_announced: set[str] = set()


def can_compile() -> bool:
    """Whether Numba is installed."""
    return find_spec("numba") is not None


def compiled(function: Plain, replaced: Mapping[Plain, Plain] | None = None) -> Any:
    """The function and all the plain functions it calls, compiled when first called.

    ``replaced`` puts functions in the place of stand-ins, wherever these are called from here.
    """
    if not can_compile():
        raise FedtwinError("The compiled engine needs Numba: pip install 'fedtwin[fast]', or run.engine = 'readable'.")
    return _compiled(function, replaced or {}, {draws.as_word: _as_word()}, (), stamp(function, replaced))


def _compiled(function: Any, replaced: Mapping[Plain, Plain], known: dict[Any, Any], callers: tuple[Any, ...], tag: str) -> Any:
    """``tag`` is a part of every name: code of two policies, read from disk into one process, must not be linked together."""
    from numba import njit

    if function in known:
        return known[function]
    if function in callers:
        raise CannotCompileError(f"{function.__name__} calls itself")
    _require_same_numbers(function)
    names = dict(function.__globals__)
    for name, called in _called_by(function, replaced).items():
        names[name] = _compiled(called, replaced, known, (*callers, function), tag)
    name = f"{function.__name__}_{tag}"
    copy = FunctionType(function.__code__, names, name, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__module__ = function.__kwdefaults__, function.__module__
    copy.__qualname__ = name
    ours = function.__module__.partition(".")[0] == "fedtwin"
    known[function] = njit(copy, error_model="numpy" if ours else "python")
    return known[function]


def _called_by(function: Any, replaced: Mapping[Plain, Plain]) -> dict[str, Any]:
    """The plain functions behind the global names that a function mentions."""
    mentioned = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {name: replaced.get(value, value) for name, value in mentioned.items() if isinstance(value, FunctionType)}


def _require_same_numbers(function: Any) -> None:
    """Only what has the same bits when compiled."""
    name, before = function.__name__, None
    for step in dis.get_instructions(function):
        if step.opname in ("BINARY_POWER", "INPLACE_POWER") or (step.opname == "BINARY_OP" and step.argrepr in ("**", "**=")):
            raise CannotCompileError(f"{name} uses **, which compiled code rounds otherwise: math.pow is the same in both")
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and before is math and step.argval not in SAME_MATH:
            raise CannotCompileError(f"{name} uses math.{step.argval}, which compiled code rounds otherwise")
        before = None
        if step.opname == "LOAD_GLOBAL":
            before = function.__globals__.get(step.argval)
            if isinstance(before, ModuleType) and before is not math:
                raise CannotCompileError(f"{name} uses the module {step.argval}, of which compiled code may make other numbers")
            if step.argval not in function.__globals__ and step.argval not in SAME_BUILTINS:
                raise CannotCompileError(f"{name} uses {step.argval}, of which compiled code may make other numbers")


@cache
def _as_word() -> Any:
    from numba import njit

    return njit(lambda z: np.uint64(z))


def stamp(function: Plain, replaced: Mapping[Plain, Plain] | None = None) -> str:
    """Names what would be compiled: the code of all functions, their defaults, closures, and the globals they use."""
    text = hashlib.sha256()
    for called in reached(function, replaced or {}, {}):
        text.update(f"{called.__module__} {called.__qualname__} {called.__defaults__} {called.__kwdefaults__}".encode())
        _add_code(text, called.__code__)
        values = {name: called.__globals__.get(name) for name in called.__code__.co_names}
        cells = {f"cell {k}": cell.cell_contents for k, cell in enumerate(called.__closure__ or ())}
        for name, value in {**values, **cells}.items():
            text.update(f"{name} {type(value).__name__}".encode())
            if isinstance(value, type):
                text.update(repr(getattr(value, "_fields", value.__qualname__)).encode())
            elif isinstance(value, np.ndarray):
                text.update(value.tobytes())
            elif isinstance(value, int | float | str | tuple):
                text.update(repr(value).encode())
    return text.hexdigest()[:16]


def _add_code(text: Any, code: CodeType) -> None:
    text.update(code.co_code + repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(text, constant)
        else:
            text.update(repr(constant).encode())


def reached(function: Any, replaced: Mapping[Plain, Plain], found: dict[Any, None]) -> dict[Any, None]:
    """The function and all that it calls, directly or not, in the order they are met."""
    if function not in found:
        found[function] = None
        for called in _called_by(function, replaced).values():
            reached(called, replaced, found)
    return found


def folder_of(purpose: str, function: Plain, replaced: Mapping[Plain, Plain] | None = None) -> Path:
    """Where compiled code is kept for the next process: named after all that it is made from, so never stale."""
    import llvmlite
    import numba

    versions = f"{FORMAT} {__version__} {sys.version} {numba.__version__} {llvmlite.__version__}"
    name = hashlib.sha256(f"{versions} {stamp(function, replaced)}".encode()).hexdigest()[:16]
    return cache_folder() / f"{purpose}-{name}"


def keep_on_disk(dispatcher: Any, folder: Path, what: str) -> Any:
    """The same compiled function, which is now read from the folder if it is there, and left there if it is not.

    Where it has to be compiled, a line on standard error says so. A cache that cannot be used costs time, no more.
    """
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

    class Locator(_CacheLocator):
        def get_cache_path(self) -> str:
            return str(folder)

        def get_source_stamp(self) -> str:
            return folder.name

        def get_disambiguator(self) -> str:
            return ""

        @classmethod
        def from_function(cls, *_: Any) -> "Locator":
            return cls()

    class Impl(CompileResultCacheImpl):
        pass

    cast(Any, Impl)._locator_classes = [Locator]

    class Cache(FunctionCache):
        _impl_class = Impl

        def load_overload(self, *arguments: Any) -> Any:
            try:
                found = super().load_overload(*arguments)  # type: ignore[no-untyped-call]
            except Exception:
                found = None
                for damaged in folder.glob("*.nb?"):
                    damaged.unlink(missing_ok=True)
            if found is None and what not in _announced:
                _announced.add(what)
                print(f"Compiling {what}, once: about 10 s …", file=sys.stderr, flush=True)
            return found

        def save_overload(self, *arguments: Any) -> None:
            with suppress(OSError):
                super().save_overload(*arguments)  # type: ignore[no-untyped-call]

    try:
        folder.mkdir(parents=True, exist_ok=True)
        dispatcher._cache = Cache(dispatcher.py_func)  # type: ignore[no-untyped-call]
    except OSError:
        if what not in _announced:
            _announced.add(what)
            print(f"Compiling {what}: it cannot be kept in {str(folder.parent)!r}.", file=sys.stderr, flush=True)
    return dispatcher


def is_kept(folder: Path) -> bool:
    """Whether a process before this one has left compiled code there."""
    return any(folder.glob("*.nbi"))


def cache_folder() -> Path:
    """``$FEDTWIN_CACHE``, or the user's cache folder."""
    if named := os.environ.get("FEDTWIN_CACHE"):
        return Path(named) / "compiled"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "fedtwin" / "compiled"
