"""Functions and all that they call, copied with every name bound to its compiled meaning."""

import builtins
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from types import CellType, CodeType, FunctionType
from typing import Any, Literal, get_type_hints

import numpy as np

from fedtwin import draws
from fedtwin.compiling import guarded
from fedtwin.compiling.kinds import (
    Declared,
    Number,
    Truth,
    UnclearError,
    as_real,
    kind_of_annotation,
    kinds_of_arguments,
    words,
)
from fedtwin.compiling.subset import WORDS, Reading
from fedtwin.errors import CannotCompileError, FedtwinError
from fedtwin.usercode.digest import digest_of
from fedtwin.usercode.loading import own_name
from fedtwin.usercode.source import is_ours as is_our_file
from fedtwin.usercode.values import ValueDigest

Plain = Callable[..., Any]
Replaced = Mapping[Plain, Plain]


def can_compile() -> bool:
    """Whether Numba is installed."""
    return find_spec("numba") is not None


def is_ours(function: Any) -> bool:
    """Whether a function is one of fedtwin's, by the file it stands in: a name can be borrowed."""
    code = getattr(function, "__code__", None)
    return isinstance(code, CodeType) and is_our_file(code.co_filename)


def why_not(function: Plain, stand_in: Plain, declared: Declared | None = None) -> str | None:
    """Why a function of the user's cannot take the place of a stand-in in compiled code; None if it can.

    ``declared`` are the classes of settings and state that the part it belongs to declares.
    """
    if is_ours(function):
        return None
    try:
        _read(function, stand_in, {}, declared or {})
    except UnclearError as refusal:
        return str(refusal)
    return None


def compiled(function: Plain, replaced: Replaced | None = None, declared: Mapping[Plain, Declared] | None = None) -> Any:
    """The function and all the plain functions it calls, compiled when first called.

    ``replaced`` puts functions in the place of stand-ins, wherever these are called from here; ``declared`` holds, by
    stand-in, the classes that the part which replaces it declares.
    """
    return compiled_together([function], replaced, declared)[0]


def compiled_together(
    functions: Iterable[Plain], replaced: Replaced | None = None, declared: Mapping[Plain, Declared] | None = None
) -> list[Any]:
    """The same for several that share what they call, which is compiled once."""
    if not can_compile():
        raise FedtwinError("The compiled engine needs Numba: pip install 'fedtwin[sim]', or run.engine = 'readable'.")
    os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")  # vectors of other bits than the C library's
    called = list(functions)
    translation = _Translation(called, replaced or {}, declared or {})
    return [translation.of(function, function) for function in called]


def compiled_as(function: Plain, stand_in: Plain) -> Any:
    """One function of the user's, compiled for the arguments of the stand-in whose place it can take."""
    return _Translation([function], {}, {}).of(function, stand_in)


_compiled_before: dict[tuple[Plain, str], Any] = {}
"""Of fedtwin's own functions, with the stamp of all that they reach: what two engines share is compiled once in a process."""


class _Translation:
    """Its stamp is a part of every name: code of two policies, read from disk into one process, must not be linked together.

    Only ``from_python`` can be called from Python: what the others do not need for that is a third of the time.
    """

    def __init__(self, from_python: list[Plain], replaced: Replaced, declared: Mapping[Plain, Declared]) -> None:
        self._from_python, self._replaced, self._declared = from_python, replaced, declared
        self._stamps = _Stamps(replaced)
        self._ours: dict[Any, Any] = {draws.as_word: _as_word()}
        self._users: dict[Any, Any] = {draws.as_word: _as_word()}

    def of(self, function: Any, stand_in: Any) -> Any:
        if is_ours(function):
            return self._of_ours(function)
        try:
            names = _read(function, stand_in, self._replaced, self._declared.get(stand_in, {})).names
        except UnclearError as refusal:
            raise CannotCompileError(str(refusal)) from None
        return self._of_users(function, names)

    def _of_ours(self, function: Any) -> Any:
        if function not in self._ours:
            key = function, self._stamps.of(function)
            if function in self._from_python:  # has a place on disk of its own
                self._ours[function] = self._copy_of_ours(function)
            elif key in _compiled_before:
                self._ours[function] = _compiled_before[key]
            else:
                self._ours[function] = _compiled_before[key] = self._copy_of_ours(function)
        return self._ours[function]

    def _copy_of_ours(self, function: Any) -> Any:
        names = dict(function.__globals__)
        for name in function.__code__.co_names:
            called = function.__globals__.get(name)
            if isinstance(called, FunctionType):
                names[name] = self.of(self._replaced.get(called, called), called)
        return self._copy(function, names, function.__closure__, "numpy")

    def _of_users(self, function: Any, meanings: Mapping[Any, Mapping[str, Any]]) -> Any:
        if function not in self._users:
            found = {name: self._meaning(value, meanings) for name, value in meanings[function].items()}
            cells = tuple(CellType(found.get(name)) for name in function.__code__.co_freevars)
            names = {"__builtins__": builtins, "__name__": function.__module__, **found}
            self._users[function] = self._copy(function, names, cells or None, "python")
        return self._users[function]

    def _meaning(self, value: Any, meanings: Mapping[Any, Mapping[str, Any]]) -> Any:
        if value is math:
            return guarded.compiled_math()
        if value in WORDS or value is draws.uniform:
            return self._of_ours(value)
        if isinstance(value, FunctionType):
            return self._of_users(value, meanings)
        name = guarded.NAMES.get(value) if callable(value) else None
        return guarded.compiled_function(name) if name is not None else value

    def _copy(self, function: Any, names: dict[str, Any], closure: Any, error_model: Literal["python", "numpy"]) -> Any:
        from numba import njit

        name = f"{function.__name__}_{self._stamps.of(function)}".replace("<lambda>", "lambda")
        copy = FunctionType(function.__code__, names, name, function.__defaults__, closure)
        copy.__kwdefaults__, copy.__module__, copy.__qualname__ = function.__kwdefaults__, function.__module__, name
        inner = function not in self._from_python
        wrappers: Any = {"no_cpython_wrapper": inner, "no_cfunc_wrapper": inner}
        return njit(copy, error_model=error_model, **wrappers)


def _read(function: Any, stand_in: Any, replaced: Replaced, declared: Declared) -> Reading:
    reading = Reading(dict(replaced), [record for record in declared.values() if record is not None])
    try:
        kind = reading.read(function, kinds_of_arguments(stand_in, declared))
    except RecursionError:
        raise UnclearError("it is nested too deeply") from None
    if function is not stand_in:
        _require_result(kind, get_type_hints(stand_in)["return"], declared)
    return reading


def _require_result(kind: Any, promised: Any, declared: Declared) -> None:
    if promised is float:
        if not isinstance(kind, Number):
            raise UnclearError("it does not give a number")
        as_real(kind)
    elif promised is bool:
        if not isinstance(kind, Truth):
            raise UnclearError("it does not give True or False")
    elif kind != (wanted := kind_of_annotation(promised, "state", declared)):
        raise UnclearError(f"it gives {words(kind)}, not {words(wanted)}")


@cache
def _as_word() -> Any:
    from numba import njit

    return njit(lambda z: np.uint64(z))


def stamp(function: Plain, replaced: Replaced | None = None, *others: Plain) -> str:
    """Names what would be compiled: fedtwin's functions with all that they mention, and the digest of the user's.

    It is the same wherever the user's files lie. ``others`` are compiled together with the function.
    """
    stamps = _Stamps(replaced or {})
    if not others:
        return stamps.of(function)
    return hashlib.sha256(" ".join(map(stamps.of, (function, *others))).encode()).hexdigest()[:16]


class _Stamps:
    """Sixteen hexadecimal digits for every function: of its own code, what it mentions, and the stamps of those it calls."""

    def __init__(self, replaced: Replaced) -> None:
        self._replaced = replaced
        self._known: dict[Any, str] = {}

    def of(self, function: Any) -> str:
        if function not in self._known:
            self._known[function] = "itself"
            self._known[function] = self._worked_out(function)
        return self._known[function]

    def _worked_out(self, function: Any) -> str:
        text, values = hashlib.sha256(), ValueDigest()
        text.update(f"{own_name(str(function.__module__))} {function.__qualname__}".encode())
        _add_code(text, function.__code__)
        values.add((function.__defaults__, function.__kwdefaults__))
        if is_ours(function):
            values.add([_held(cell.cell_contents) for cell in function.__closure__ or ()])
        else:
            text.update(digest_of(function).encode())
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, FunctionType):
                text.update(f" {name} {self.of(self._replaced.get(value, value))}".encode())
            else:
                values.add((name, value, getattr(value, "_fields", None), getattr(value, "_field_defaults", None)))
        text.update(values.hexdigest().encode())
        return text.hexdigest()[:16]


def _held(value: Any) -> Any:
    """What a closure of fedtwin's own holds: numbers, or a class that a part declares."""
    return (value.__qualname__, value._fields) if isinstance(value, type) and hasattr(value, "_fields") else value


def _add_code(text: Any, code: CodeType) -> None:
    text.update(code.co_code + repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(text, constant)
        else:
            text.update(f"{type(constant)} {constant!r}".encode())


def reached(function: Any, replaced: Replaced, found: dict[Any, None]) -> dict[Any, None]:
    """The function and all that it calls by names of its module or closure, directly or not, in the order they are met."""
    if function not in found:
        found[function] = None
        for called in (*map(function.__globals__.get, function.__code__.co_names), *_in_closure(function)):
            if isinstance(called, FunctionType):
                reached(replaced.get(called, called), replaced, found)
    return found


def _in_closure(function: Any) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # of a name that is not set yet
            yield cell.cell_contents
