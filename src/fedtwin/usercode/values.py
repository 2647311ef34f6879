"""Values as bytes: the same for equal values in any process, and of every kind that code is made of.

Of objects from libraries only the type is seen.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from fedtwin.usercode.loading import own_name
from fedtwin.usercode.reaching import is_users

PLAIN = (type(None), bool, int, complex, str, bytes, type(Ellipsis))
NOT_OF_A_CLASS = {"__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"}


class ValueDigest:
    """Takes values in, and all that they are made of or reach by name; ``hexdigest`` names what was taken.

    ``modules`` are those of the user's that functions and classes among them come from, ``functions`` the user's functions.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # what is seen must not be freed: its id would be given to another
        self.modules: dict[str, None] = {}
        self.functions: list[FunctionType] = []

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        if type(value) in PLAIN:
            self._say("plain", type(value).__name__, repr(value))
        elif type(value) is float:
            self._say("real", value.hex())
        elif id(value) in self._seen:
            self._say("again", str(self._seen[id(value)]))
        else:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            self._add_composed(value)

    def _add_composed(self, value: Any) -> None:
        self._say("value", _name_of_type(value))
        if isinstance(value, np.generic):
            self._say(str(value.dtype), value.tobytes().hex())
        elif isinstance(value, np.ndarray):
            self._add_array(value)
        elif isinstance(value, Enum):
            self._say(value.name)
            self.add(value.value)
        elif isinstance(value, tuple | list):
            self._all(value)
        elif isinstance(value, dict):
            self._all(part for item in value.items() for part in item)
        elif isinstance(value, set | frozenset):
            self._say(*sorted(_alone(part) for part in value))
        elif isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, MethodType):
            self._all((value.__func__, value.__self__))
        elif isinstance(value, staticmethod | classmethod):
            self.add(value.__func__)
        elif isinstance(value, property):
            self._all((value.fget, value.fset, value.fdel))
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, ModuleType):
            self._say(own_name(value.__name__))
        elif isinstance(value, functools.partial):
            self._all((value.func, value.args, value.keywords))
        elif isinstance(value, CodeType):
            self._add_code(value)
        elif isinstance(value, Callable) and hasattr(value, "__wrapped__"):  # type: ignore[arg-type]
            self.add(value.__wrapped__)
        elif isinstance(value, float | int | str | bytes | complex):
            self._say(repr(value))
        elif hasattr(value, "detach") and hasattr(value, "numpy"):
            self._add_tensor(value)
        elif hasattr(value, "py_func"):
            self.add(value.py_func)
        elif dataclasses.is_dataclass(value):
            self._all(getattr(value, field.name) for field in dataclasses.fields(value))
        elif is_users(type(value).__module__):
            self._all(part for item in getattr(value, "__dict__", {}).items() for part in item)
        elif hasattr(value, "__qualname__"):
            self._say(str(getattr(value, "__module__", "")), value.__qualname__)

    def _add_array(self, value: Any) -> None:
        self._say(str(value.dtype), str(value.shape))
        if value.dtype.hasobject:
            self._all(value.ravel().tolist())
        else:
            self._hash.update(np.ascontiguousarray(value).tobytes())

    def _add_tensor(self, value: Any) -> None:
        self._say(str(value.dtype), str(tuple(value.shape)))
        try:
            self.add(value.detach().cpu().numpy())
        except (TypeError, RuntimeError):
            self.add(value.detach().cpu().to(dtype=None).tolist())

    def _add_function(self, function: FunctionType) -> None:
        module = function.__module__ or ""
        self._say(own_name(module), function.__qualname__)
        if not is_users(module):
            return
        self.modules[module] = None
        self.functions.append(function)
        self._add_code(function.__code__)
        if not Path(function.__code__.co_filename).is_file():
            self._say(function.__code__.co_code.hex())
        self._all((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:
                self._say("empty")
        names = dict.fromkeys(_names_in(function.__code__))
        for name in names:
            if name in function.__globals__:
                value = function.__globals__[name]
                self._say(name)
                self.add(value)
                if isinstance(value, ModuleType) and is_users(value.__name__):
                    self._all(getattr(value, one) for one in names if hasattr(value, one))

    def _add_class(self, cls: type) -> None:
        self._say(own_name(cls.__module__), cls.__qualname__)
        if is_users(cls.__module__):
            self.modules[cls.__module__] = None
            self._all(cls.__bases__)
            for name, value in sorted(vars(cls).items()):
                if name not in NOT_OF_A_CLASS and not name.startswith("_abc_"):
                    self._say(name)
                    self.add(value)

    def _add_code(self, code: CodeType) -> None:
        """Names and constants only: byte code is of one Python version, and what it does stands in the source."""
        self._say("code", code.co_name, repr(code.co_names), repr(code.co_varnames), str(code.co_argcount))
        self._all(code.co_consts)

    def _all(self, values: Any) -> None:
        values = list(values)
        self._say(str(len(values)))
        for value in values:
            self.add(value)

    def _say(self, *words: str) -> None:
        for word in words:
            data = word.encode("utf-8", "backslashreplace")
            self._hash.update(len(data).to_bytes(8, "little") + data)


def _alone(value: Any) -> str:
    digest = ValueDigest()
    digest.add(value)
    return digest.hexdigest()


def _name_of_type(value: Any) -> str:
    return f"{own_name(type(value).__module__)}.{type(value).__qualname__}"


def _names_in(code: CodeType) -> Iterator[str]:
    """Global names and attributes that a function mentions, those of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
