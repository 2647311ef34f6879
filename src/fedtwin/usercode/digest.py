"""One digest of code that is the user's own: the same digest, the same numbers.

It sees the source of the module and of every module of the user's that it reaches by an import statement, the values of the
constants that its functions mention, and the versions of the distributions it uses beside those that fedtwin itself needs.
Functions of a notebook, whose source is in no module, count by their byte code. It does not see files, the environment, modules
imported by computed names, and the inside of objects of libraries.
"""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from fedtwin.errors import FedtwinError
from fedtwin.usercode.inside import names_in
from fedtwin.usercode.loading import HELD, load_object, module_of
from fedtwin.usercode.reaching import Reached, reached_by_name, reached_from
from fedtwin.usercode.source import CHANGED, code_of_function, sentence_of_error
from fedtwin.usercode.values import ValueDigest, byte_code


def code_digest(setting: str, name: str, folder: str | Path | None = None, *, running: bool = False) -> str:
    """Sixty-four hexadecimal digits for ``module:attribute``, the same wherever the files lie."""
    value = load_object(setting, name, folder)
    return digest_of(value, *(() if name in HELD else (module_of(name, folder),)), running=running)


def digest_of(value: Any, *modules: ModuleType, running: bool = False) -> str:
    """The digest of a function, class or value, with its modules.

    A module whose file is no longer what was imported is refused, unless the code is ``running`` already.
    """
    values = ValueDigest()
    try:
        values.add(value)
    except RecursionError:
        raise FedtwinError("Code of your own holds a value that is nested too deeply to be told apart from another.") from None
    except Exception as error:
        raise FedtwinError(f"Code of your own holds a value that cannot be looked at: {sentence_of_error(error)}.") from None
    changed = [] if running else [function for function in values.functions if _has_changed(function)]
    _refuse(function for function in changed if _stands_in_its_module(function))
    reached = reached_from(*modules, *_loaded(values.modules))
    typed, text = _without_source(values.functions, reached), values.hexdigest()
    _refuse(function for function in changed if function not in typed)
    if typed:
        text += "".join(part for function in typed for part in byte_code(function.__code__))
        reached = reached_from(*modules, *_loaded(values.modules), *_loaded(values.libraries))
    return hashlib.sha256(f"{_digest_of_sources(reached)} {text}".encode()).hexdigest()


def clear_caches(*values: Any) -> bool:
    """Empties every ``functools.cache`` that code of the user's reaches by name; whether there is one."""
    reached = ValueDigest()
    for value in values:
        reached.add(value)
    for cache in reached.caches:
        cache.cache_clear()
    return bool(reached.caches)


def mentions(value: Any, names: Iterable[str]) -> bool:
    """Whether a function of the user's that the value reaches has one of the names in it."""
    reached = ValueDigest()
    reached.add(value)
    return any(not set(names_in(function.__code__)).isdisjoint(names) for function in reached.functions)


def _refuse(changed: Iterable[FunctionType]) -> None:
    for function in changed:
        file = function.__code__.co_filename
        raise FedtwinError(f"{file!r} has been changed since it was imported: start Python again, or reload it.")


def _has_changed(function: FunctionType) -> bool:
    """What was typed at a prompt, or made by ``exec``, counts by its byte code."""
    return not function.__code__.co_filename.startswith("<") and code_of_function(function) == CHANGED


def _stands_in_its_module(function: FunctionType) -> bool:
    return getattr(sys.modules.get(str(function.__module__)), "__file__", None) == function.__code__.co_filename


def _loaded(names: Iterable[str]) -> list[ModuleType]:
    return [sys.modules[name] for name in names if name in sys.modules]


def _without_source(functions: list[FunctionType], reached: Reached) -> list[FunctionType]:
    """Functions of a notebook, whose source is in none of the modules: they count by what they do."""
    files = {str(path) for file in reached.files.values() for path in (file, file.resolve())}
    named = [(function, function.__code__.co_filename) for function in functions]
    return [one for one, file in named if not file.startswith("<") and not {file, str(Path(file).resolve())} & files]


def source_digest(name: str, folder: str | Path | None = None) -> str:
    """The part of the digest that is had without loading anything: sources and versions, not values."""
    return _digest_of_sources(reached_by_name(name, folder))


def _digest_of_sources(reached: Reached) -> str:
    text = hashlib.sha256()
    for module, source in sorted(reached.sources.items()):
        text.update(f"{module} {hashlib.sha256(source).hexdigest()}\n".encode())
    for distribution in sorted(reached.distributions):
        text.update(f"{distribution}\n".encode())
    return text.hexdigest()
