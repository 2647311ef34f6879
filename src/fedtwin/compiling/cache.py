"""Compiled code kept on disk for the next process. The only file that knows the inside of Numba's cache.

That inside is private and may change with any release. So it is looked at before it is used, and each cache after it is made:
where anything is not as it was when this was written, code is compiled without being kept, and one warning says so.
"""

import hashlib
import inspect
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any, cast

from fedtwin import __version__
from fedtwin.compiling.turns import Turns
from fedtwin.errors import FedtwinWarning

FORMAT = 3
KNOWN_FROM, KNOWN_BEFORE = (0, 60), (0, 69)
"""Releases of Numba whose inside is known; pyproject.toml asks for one of them."""
OF_A_LOCATOR = {"get_cache_path", "get_source_stamp", "get_disambiguator"}
OF_A_CACHE = {"load_overload": ["self", "sig", "target_context"], "save_overload": ["self", "sig", "data"]}
_announced: set[str] = set()
_turns = Turns()


def folder_of(purpose: str, made_from: str) -> Path:
    """Where compiled code is kept for the next process: named after all that it is made from (its stamp), so never stale."""
    import llvmlite
    import numba

    versions = f"{FORMAT} {__version__} {sys.version} {numba.__version__} {llvmlite.__version__}"
    name = hashlib.sha256(f"{versions} {made_from}".encode()).hexdigest()[:16]
    return cache_folder() / f"{purpose}-{name}"


def keep_on_disk(dispatcher: Any, folder: Path, what: str) -> Any:
    """The same compiled function, which is now read from the folder if it is there, and left there if it is not.

    Where it has to be compiled, a line on standard error says so. A cache that cannot be used costs time, no more.
    """
    reason = why_unknown() or _why_unfit(dispatcher)
    if reason is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = _new_cache(dispatcher.py_func, folder, what)
            reason = _why_elsewhere(found, folder)
        except OSError:
            if what not in _announced:
                _announced.add(what)
                print(f"Compiling {what}: it cannot be kept in {str(folder.parent)!r}.", file=sys.stderr, flush=True)
            return dispatcher
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
    if reason is None:
        dispatcher._cache = found
    else:
        _warn_of_the_unknown(reason)
    return dispatcher


def why_unknown() -> str | None:
    """What about the installed Numba is not as it was when this was written; None where all is."""
    import numba

    version = tuple(int(part) for part in re.findall(r"\d+", numba.__version__)[:2])
    if not KNOWN_FROM <= version < KNOWN_BEFORE:
        return f"from {_dotted(KNOWN_FROM)} on and before {_dotted(KNOWN_BEFORE)} is known"
    try:
        from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, _CacheLocator
    except ImportError as error:
        return str(error)
    if not all(isinstance(part, type) for part in (CompileResultCacheImpl, FunctionCache, NullCache, _CacheLocator)):
        return "its cache is not made of classes"
    if set(getattr(_CacheLocator, "__abstractmethods__", ())) != OF_A_LOCATOR:
        return "a locator has other methods"
    for name, arguments in OF_A_CACHE.items():
        method = getattr(FunctionCache, name, None)
        if method is None or list(inspect.signature(method).parameters) != arguments:
            return f"{name} has other arguments"
    parts = (CompileResultCacheImpl, "_locator_classes"), (FunctionCache, "_impl_class"), (FunctionCache, "cache_path")
    return next((f"{cls.__name__} has no {name}" for cls, name in parts if not hasattr(cls, name)), None)


def _why_unfit(dispatcher: Any) -> str | None:
    from numba.core.caching import NullCache

    fits = type(getattr(dispatcher, "_cache", None)) is NullCache and hasattr(dispatcher, "py_func")
    return None if fits else "a compiled function holds its cache otherwise"


def _why_elsewhere(made: Any, folder: Path) -> str | None:
    """A cache of Numba's own choice is named after a file and its time: code of two policies would be one there."""
    return None if made.cache_path == str(folder) else f"it keeps code in {made.cache_path!r}"


def _new_cache(py_func: Any, folder: Path, what: str) -> Any:
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
            found = self._load(*arguments)
            if found is None and _turns.wait(folder):  # another process was compiling it: it may be there now
                found = self._load(*arguments)
            if found is not None:
                _turns.end()
            elif what not in _announced:
                _announced.add(what)
                print(f"Compiling {what}, once: about 10 s …", file=sys.stderr, flush=True)
            return found

        def _load(self, *arguments: Any) -> Any:
            try:
                return super().load_overload(*arguments)  # type: ignore[no-untyped-call]
            except Exception:
                for damaged in folder.glob("*.nb?"):
                    damaged.unlink(missing_ok=True)
                return None

        def save_overload(self, *arguments: Any) -> None:
            try:
                super().save_overload(*arguments)  # type: ignore[no-untyped-call]
            except OSError:
                pass
            except Exception as error:
                _warn_of_the_unknown(f"{type(error).__name__}: {error}")
            finally:
                _turns.end()

    return Cache(py_func)  # type: ignore[no-untyped-call]


def _warn_of_the_unknown(reason: str) -> None:
    """Once in a process."""
    import numba

    if reason not in _announced:
        _announced.add(reason)
        sentence = (
            f"The cache of Numba {numba.__version__} is not what fedtwin knows ({' '.join(reason.split())}): "
            "compiled code is not kept for the next process."
        )
        warnings.warn(sentence, FedtwinWarning, stacklevel=3)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def is_kept(folder: Path) -> bool:
    """Whether a process before this one has left compiled code there that can be read."""
    return any(folder.glob("*.nbi")) and why_unknown() is None


def cache_folder() -> Path:
    """``$FEDTWIN_CACHE``, or the user's cache folder."""
    if named := os.environ.get("FEDTWIN_CACHE"):
        return Path(named) / "compiled"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "fedtwin" / "compiled"
