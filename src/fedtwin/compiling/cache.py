"""Compiled code kept on disk for the next process. The only file that knows the inside of Numba's cache."""

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from fedtwin import __version__
from fedtwin.compiling.translate import Plain, Replaced, stamp

FORMAT = 3
_announced: set[str] = set()


def folder_of(purpose: str, function: Plain, replaced: Replaced | None = None) -> Path:
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
