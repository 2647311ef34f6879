"""One digest of code that is the user's own: the same digest, the same numbers.

It sees the source of the module and of every module of the user's that it reaches by an import statement, the values of the
constants that its functions mention, and the versions of the distributions it uses beside those that fedtwin itself needs. It
does not see files, the environment, modules imported by computed names, and the inside of objects of libraries.
"""

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from fedtwin.errors import FedtwinError
from fedtwin.usercode.loading import load_object, module_of
from fedtwin.usercode.reaching import Reached, reached_by_name, reached_from
from fedtwin.usercode.source import CHANGED, code_of_function
from fedtwin.usercode.values import ValueDigest


def code_digest(setting: str, name: str, folder: str | Path | None = None) -> str:
    """Sixty-four hexadecimal digits for ``module:attribute``, the same wherever the files lie."""
    return digest_of(load_object(setting, name, folder), module_of(name, folder))


def digest_of(value: Any, *modules: ModuleType) -> str:
    """The digest of a function, class or value, with its modules."""
    values = ValueDigest()
    try:
        values.add(value)
    except RecursionError:
        raise FedtwinError("Code of your own holds a value that is nested too deeply to be told apart from another.") from None
    for function in values.functions:
        if code_of_function(function) == CHANGED:
            file = function.__code__.co_filename
            raise FedtwinError(f"{file!r} has been changed since it was imported: start Python again, or reload it.")
    found = [sys.modules[name] for name in values.modules if name in sys.modules]
    sources = _digest_of_sources(reached_from(*modules, *found))
    return hashlib.sha256(f"{sources} {values.hexdigest()}".encode()).hexdigest()


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
