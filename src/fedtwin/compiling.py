"""Plain functions, compiled as they are (Numba), so that a formula is written once and serves every engine with the same bits.

``compiled`` takes a function and whatever functions of ours it calls; there are no decorators on the formulas, and nothing
here is imported where nothing is compiled. Floating point is strict: no reordering, no fused operations, and the mathematical
functions are those of the C library that Python's ``math`` calls as well.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from fedtwin import __version__, draws
from fedtwin.errors import FedtwinError

PACKAGE = Path(__file__).parent


def can_compile() -> bool:
    """Whether Numba is installed."""
    return find_spec("numba") is not None


def compiled(function: Callable[..., Any], replaced: dict[str, Any] | None = None) -> Any:
    """The function and all the plain functions it calls, compiled when first called.

    ``replaced`` puts other functions behind global names, here and in whatever is called from here.
    """
    if not can_compile():
        raise FedtwinError("The compiled engine needs Numba: pip install 'fedtwin[fast]', or run.engine = 'readable'.")
    return _compiled(function, replaced or {}, {draws.as_word: _as_word()})


def _compiled(function: Any, replaced: dict[str, Any], known: dict[Any, Any]) -> Any:
    from numba import njit

    if function in known:
        return known[function]
    names = dict(function.__globals__)
    for name in {*function.__code__.co_names} & {*names, *replaced}:
        called = replaced.get(name, names.get(name))
        names[name] = _compiled(called, replaced, known) if isinstance(called, FunctionType) else called
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__module__, copy.__qualname__ = (
        function.__kwdefaults__,
        function.__module__,
        function.__qualname__,
    )
    known[function] = njit(copy, error_model="numpy")
    return known[function]


@cache
def _as_word() -> Any:
    import numpy as np
    from numba import njit

    return njit(lambda z: np.uint64(z))


def folder_of(purpose: str, sources: Iterable[str] = ()) -> Path:
    """Where compiled code is kept for the next process: the folder is named after every source it is made from."""
    return cache_folder() / f"{purpose}-{_stamp(tuple(sources))}"


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


@cache
def _stamp(sources: tuple[str, ...]) -> str:
    import llvmlite
    import numba

    text = hashlib.sha256(f"{__version__} {sys.version} {numba.__version__} {llvmlite.__version__}".encode())
    ours = [str(path) for path in PACKAGE.rglob("*.py") if "learning" not in path.parts and "cli" not in path.parts]
    for path in sorted({*ours, *sources}):
        text.update(Path(path).read_bytes())
    return text.hexdigest()[:16]
