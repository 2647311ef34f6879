"""Values as bytes: the same for equal values in any process, and of every kind that code is made of.

Of objects from libraries only the type is seen, of numbers, arrays and tensors among them the value.
"""

import dataclasses
import dis
import functools
import hashlib
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from inspect import getattr_static
from numbers import Number
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from fedtwin.usercode.loading import module_beside, own_name
from fedtwin.usercode.reaching import is_users, is_users_file

PLAIN = (type(None), bool, complex, str, bytes, type(Ellipsis), range)
NOT_OF_A_CLASS = {"__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__", "__slots__"}


class ValueDigest:
    """Takes values in, and all that they are made of or reach by name; ``hexdigest`` names what was taken.

    ``modules`` are those of the user's that functions and classes among them come from, ``functions`` the user's functions,
    ``libraries`` all other modules that they use.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # what is seen must not be freed: its id would be given to another
        self.modules: dict[str, None] = {}
        self.functions: list[FunctionType] = []
        self.libraries: dict[str, None] = {}

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        if type(value) in PLAIN:
            self._say("plain", type(value).__name__, repr(value))
        elif type(value) is int:
            self._say("whole", hex(value))
        elif type(value) is float:
            self._say("real", value.hex())
        elif id(value) in self._seen:
            self._say("again", str(self._seen[id(value)]))
        else:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            self._say("value", _name_of_type(value))
            self._add_composed(value)
            if not isinstance(value, type) and is_users(str(type(value).__module__)):
                self._add_state(value)

    def _add_composed(self, value: Any) -> None:
        library = str(type(value).__module__).partition(".")[0]
        match value:
            case FunctionType():
                self._add_function(value)
            case type():
                self._add_class(value)
            case ModuleType():
                self._say(own_name(value.__name__))
                self.libraries[value.__name__] = None
            case MethodType():
                self._all((value.__func__, value.__self__))
            case staticmethod() | classmethod():
                self.add(value.__func__)
            case property():
                self._all((value.fget, value.fset, value.fdel))
            case functools.cached_property():
                self.add(value.func)
            case functools.partial():
                self._all((value.func, value.args, value.keywords))
            case Enum():
                self._say(value.name)
                self.add(value.value)
            case np.generic():
                self._say(str(value.dtype), value.tobytes().hex())
            case np.ndarray():
                self._add_array(value)
            case tuple() | list() | deque():
                self._all(value)
            case dict():
                self._all(part for item in value.items() for part in item)
            case set() | frozenset():
                self._say(*sorted(_alone(part) for part in value))
            case bytearray():
                self._say(bytes(value).hex())
            case SimpleNamespace():
                self.add(vars(value))
            case int() | float() | str() | bytes() | Number():
                self._say(_text(value))
            case CodeType():
                self._add_code(value)
            case BuiltinFunctionType() | MethodWrapperType():
                self._say(value.__qualname__)
                self.add(value.__self__)
            case WrapperDescriptorType() | MethodDescriptorType() | ClassMethodDescriptorType():
                self._say(value.__objclass__.__qualname__, value.__qualname__)
            case np.ufunc():
                self._say(value.__name__)
            case _ if library == "torch":
                self._add_torch(value)
            case _ if library == "numba":
                self.add(getattr_static(value, "py_func", None))
            case _ if getattr_static(value, "__wrapped__", None) is not None:
                self.add(getattr_static(value, "__wrapped__"))
            case _ if dataclasses.is_dataclass(value):
                self._all(getattr(value, field.name, None) for field in dataclasses.fields(value))
            case _ if callable(value) and isinstance(getattr_static(value, "__qualname__", None), str):
                self._say(_text(getattr_static(value, "__qualname__")))

    def _add_state(self, value: Any) -> None:
        """An object of a class of the user's: the class, and what the object holds."""
        self.add(type(value))
        with suppress(AttributeError):
            self.add(dict(object.__getattribute__(value, "__dict__")))
        for cls in type(value).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                try:
                    self.add((name, cls.__dict__[name].__get__(value)))
                except (AttributeError, KeyError):
                    self._say(str(name), "empty")

    def _add_array(self, value: Any) -> None:
        self._say(str(value.dtype), str(value.shape))
        if value.dtype.hasobject:
            self._all(value.ravel().tolist())
        else:
            self._hash.update(np.ascontiguousarray(value).tobytes())

    def _add_torch(self, value: Any) -> None:
        import torch

        if isinstance(value, torch.Tensor):
            self._say(str(value.dtype), str(tuple(value.shape)))
            self.add(value.detach().cpu().to_dense().flatten().tolist())
        elif isinstance(value, torch.nn.Module):
            self._say(repr(value))
            self.add(dict(value.state_dict()))
        elif isinstance(value, torch.dtype | torch.device | torch.Size):
            self._say(repr(value))

    def _add_function(self, function: FunctionType) -> None:
        self._say(own_name(str(function.__module__)), function.__qualname__)
        file = function.__code__.co_filename
        if not is_users_file(file):
            self.libraries[str(function.__module__)] = None
            return
        self.modules[str(function.__module__)] = None
        self.functions.append(function)
        self._add_code(function.__code__)
        place = place_in_source(function.__code__)
        self._say(*(byte_code(function.__code__) if file.startswith("<") or place is None else [place]))
        self._all((function.__defaults__, function.__kwdefaults__, dict(function.__dict__)))
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents)
            except ValueError:
                self._say("empty")
        names, inside = dict.fromkeys(_names_in(function.__code__)), _imported_inside(function)
        for name in names:
            value = function.__globals__.get(name, inside.get(name))
            if value is not None:
                self._say(name)
                self.add(value)
            if isinstance(value, ModuleType):
                self._add_attributes(value, names, set())

    def _add_attributes(self, module: ModuleType, names: dict[str, None], known: set[str]) -> None:
        """Of a module of the user's all that a function may mean by ``module.name``, also ``module.other.name``."""
        if not is_users(module.__name__) or module.__name__ in known:
            return
        known.add(module.__name__)
        for name in names:
            value = vars(module).get(name)
            if value is not None:
                self._say(name)
                self.add(value)
            if isinstance(value, ModuleType):
                self._add_attributes(value, names, known)

    def _add_class(self, cls: type) -> None:
        self._say(own_name(str(cls.__module__)), cls.__qualname__)
        if is_users(str(cls.__module__)):
            self.modules[str(cls.__module__)] = None
            self._all((type(cls), *cls.__bases__))
            for name, value in sorted(vars(cls).items()):
                if name not in NOT_OF_A_CLASS and not name.startswith("_abc_"):
                    self._say(name)
                    self.add(value)
        else:
            self.libraries[str(cls.__module__)] = None

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


def place_in_source(code: CodeType) -> str | None:
    """Where a function ends in its file: of several in one file, which one it is, whatever the version of Python."""
    ends = [(last, column) for _, last, _, column in code.co_positions() if last is not None and column is not None]
    return f"{code.co_firstlineno} {max(ends)}" if ends else None


def byte_code(code: CodeType) -> Iterator[str]:
    """What code does, where there is no source that says it; with the functions inside it."""
    yield code.co_code.hex()
    if code.co_exceptiontable:
        yield code.co_exceptiontable.hex()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from byte_code(constant)


def _alone(value: Any) -> str:
    digest = ValueDigest()
    digest.add(value)
    return digest.hexdigest()


def _text(value: Any) -> str:
    return hex(value) if isinstance(value, int) else repr(value)


def _name_of_type(value: Any) -> str:
    return f"{own_name(str(type(value).__module__))}.{type(value).__qualname__}"


def _imported_inside(function: FunctionType) -> dict[str, ModuleType]:
    """Modules of the user's that a function imports when it is called, loaded now: their values count from the start."""
    found = {}
    for name in _imports_in(function.__code__):
        with suppress(Exception):
            module = module_beside(str(function.__module__), name)
            if is_users(module.__name__):
                found[name.partition(".")[0]] = module
    return found


def _imports_in(code: CodeType) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports_in(constant)


def _names_in(code: CodeType) -> Iterator[str]:
    """Global names and attributes that a function mentions, those of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
