"""Plain functions, compiled as they are (Numba), so that a formula is written once and serves every engine with the same bits.

``compiled`` takes a function and whatever functions of ours it calls; there are no decorators on the formulas, and nothing
here is imported where nothing is compiled. Floating point is strict: no reordering, no fused operations, and the mathematical
functions are those of the C library that Python's ``math`` calls as well.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from fedtwin import __version__, draws
from fedtwin.errors import FedtwinError

Plain = Callable[..., Any]


def can_compile() -> bool:
    """Whether Numba is installed."""
    return find_spec("numba") is not None


def compiled(function: Plain, replaced: Mapping[Plain, Plain] | None = None) -> Any:
    """The function and all the plain functions it calls, compiled when first called.

    ``replaced`` puts functions in the place of stand-ins, wherever these are called from here.
    """
    if not can_compile():
        raise FedtwinError("The compiled engine needs Numba: pip install 'fedtwin[fast]', or run.engine = 'readable'.")
    return _compiled(function, replaced or {}, {draws.as_word: _as_word()})


def _compiled(function: Any, replaced: Mapping[Plain, Plain], known: dict[Any, Any]) -> Any:
    from numba import njit

    if function in known:
        return known[function]
    names = dict(function.__globals__)
    for name, called in _called_by(function, replaced).items():
        names[name] = _compiled(called, replaced, known)
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__module__, copy.__qualname__ = (
        function.__kwdefaults__,
        function.__module__,
        function.__qualname__,
    )
    known[function] = njit(copy, error_model="numpy")
    return known[function]


def _called_by(function: Any, replaced: Mapping[Plain, Plain]) -> dict[str, Any]:
    """The plain functions behind the global names that a function mentions."""
    mentioned = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {name: replaced.get(value, value) for name, value in mentioned.items() if isinstance(value, FunctionType)}


@cache
def _as_word() -> Any:
    import numpy as np
    from numba import njit

    return njit(lambda z: np.uint64(z))


def folder_of(purpose: str, function: Plain, replaced: Mapping[Plain, Plain] | None = None) -> Path:
    """Where compiled code is kept for the next process: named after every source and constant that it is made from."""
    return cache_folder() / f"{purpose}-{_stamp(function, replaced or {})}"


def keep_on_disk(dispatcher: Any, folder: Path) -> Any:
    """The same compiled function, which is now read from the folder if it is there and left there if it is not."""
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

    try:
        folder.mkdir(parents=True, exist_ok=True)
        dispatcher._cache = Cache(dispatcher.py_func)  # type: ignore[no-untyped-call]
    except OSError:
        pass  # a home that cannot be written to costs time, no more
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


def _stamp(function: Plain, replaced: Mapping[Plain, Plain]) -> str:
    import llvmlite
    import numba

    text = hashlib.sha256(f"{__version__} {sys.version} {numba.__version__} {llvmlite.__version__}".encode())
    reached = _reached(function, replaced, {})
    for path in sorted({called.__code__.co_filename for called in reached}):
        text.update(Path(path).read_bytes() if Path(path).exists() else path.encode())
    for called in sorted(reached, key=lambda one: (one.__module__, one.__qualname__)):
        constants = {name: called.__globals__.get(name) for name in sorted(called.__code__.co_names)}
        numbers = {name: value for name, value in constants.items() if isinstance(value, int | float | str | tuple)}
        text.update(f"{called.__module__} {called.__qualname__} {called.__defaults__} {numbers}".encode())
    return text.hexdigest()[:16]


def _reached(function: Any, replaced: Mapping[Plain, Plain], found: dict[Any, None]) -> dict[Any, None]:
    """The function and all that it calls, directly or not."""
    if function not in found:
        found[function] = None
        for called in _called_by(function, replaced).values():
            _reached(called, replaced, found)
    return found
