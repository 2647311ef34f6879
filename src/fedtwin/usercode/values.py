"""Values as bytes: the same for equal values in any process, and of every kind that code is made of.

Of objects from libraries only the type is seen, of numbers, arrays and tensors among them the value.
"""

import dataclasses
import functools
import hashlib
import sys
from array import array
from collections import ChainMap, UserDict, UserList, defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, time, timedelta, tzinfo
from enum import Enum
from inspect import getattr_static
from numbers import Number
from operator import attrgetter, itemgetter, methodcaller
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from fedtwin.usercode.inside import cells_of, given_to, held_names_in, imported_inside, names_in, was_given_users_code
from fedtwin.usercode.loading import MAIN, own_name
from fedtwin.usercode.reaching import is_users, is_users_file
from fedtwin.usercode.source import is_ours

PLAIN = (type(None), bool, complex, str, bytes, type(Ellipsis), range)
NOT_OF_A_CLASS = {
    *("__module__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__", "__slots__"),
    "_abc_impl",
    *("_value2member_map_", "_inverted_"),  # of a flag, which makes its combinations when they are asked for
}
OF_A_FILE = {"__name__", "__package__", "__file__", "__spec__", "__loader__", "__path__", "__cached__"}
"""What a module is told of the place where it lies, which does not count."""
COMPUTED_NAMES = {"getattr", "vars", "__dict__", "attrgetter", "methodcaller"}
"""A function that mentions one of these may mean any name of a module that it mentions."""
ALL_NAMES = {"globals", "eval", "exec"}
"""And one of these any of its own."""
OF_A_NOTEBOOK = {"In", "Out", "exit", "quit", "get_ipython", "open"}


class ValueDigest:
    """Takes values in, and all that they are made of or reach by name; ``hexdigest`` names what was taken.

    ``modules`` are those of the user's that functions and classes among them come from, ``functions`` the user's functions,
    ``libraries`` all other modules that they use, ``caches`` what ``functools.cache`` has made.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # what is seen must not be freed: its id would be given to another
        self.modules: dict[str, None] = {}
        self.functions: list[FunctionType] = []
        self.libraries: dict[str, None] = {}
        self.caches: list[functools._lru_cache_wrapper[Any]] = []

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
                self._add_module(value)
                if is_users(value.__name__):
                    self._add_names(vars(value))  # held as a value: which of its names are meant is not said
            case MethodType():
                self._all((value.__func__, value.__self__))
            case staticmethod() | classmethod():
                self.add(value.__func__)
            case property():
                self._all((value.fget, value.fset, value.fdel))
            case functools.cached_property():
                self.add(value.func)
            case functools.partial() | functools.partialmethod():
                self._all((value.func, value.args, value.keywords))
            case Enum():
                self._say(str(value.name))
                self.add(value.value)
            case np.generic():
                self._say(str(value.dtype), value.tobytes().hex())
            case np.ndarray():
                self._add_array(value)
            case tuple() | list() | deque():
                self._all(_as_the_library_does(value, "__iter__"))
                if isinstance(value, deque):
                    self.add(value.maxlen)
            case dict():
                self._all(part for item in _as_the_library_does(value, "items") for part in item)
                if isinstance(value, defaultdict):
                    self.add(value.default_factory)
            case set() | frozenset():
                self._say(*sorted(self._alone(part) for part in _as_the_library_does(value, "__iter__")))
            case bytearray():
                self._say(bytes(value).hex())
            case SimpleNamespace() | UserDict() | UserList() | ChainMap():
                self.add(dict(vars(value)))
            case MappingProxyType():
                self.add(dict(value))
            case array():
                self._say(value.typecode, value.tobytes().hex())
            case slice():
                self._all((value.start, value.stop, value.step))
            case date() | time() | timedelta() | tzinfo():
                self._say(repr(value))
            case itemgetter() | attrgetter() | methodcaller():
                self._all(value.__reduce__())
            case int():
                self._say(hex(int.__index__(value)))
            case float() | str() | bytes() | Number():
                self._say(str(_as_the_library_does(value, "__repr__")))
            case CodeType():
                self._add_code(value)
            case BuiltinFunctionType() | MethodWrapperType():
                self._say(value.__qualname__)
                self.add(value.__self__)
            case WrapperDescriptorType() | MethodDescriptorType() | ClassMethodDescriptorType():
                self._say(value.__objclass__.__qualname__, value.__qualname__)
            case np.ufunc():
                self._say(value.__name__)
            case _ if library == "torch" or _is_tensor(value):
                self._add_torch(value)
            case _ if library == "numba":
                self.add(given_to(value).get("py_func"))
            case _ if getattr_static(value, "__wrapped__", None) is not None:
                if isinstance(value, functools._lru_cache_wrapper):
                    self.caches.append(value)
                self.add(getattr_static(value, "__wrapped__"))
            case _ if dataclasses.is_dataclass(value):
                self._all(getattr(value, field.name, None) for field in dataclasses.fields(value))
            case _ if callable(value) and isinstance(getattr_static(value, "__qualname__", None), str):
                self._say(str(getattr_static(value, "__qualname__")))
                self._add_given(value)
            case _:
                self._add_given(value)

    def _add_given(self, value: Any) -> None:
        """What an object of a library was given of the user's code, and calls: of all else it holds only its type counts."""
        if not is_users(str(type(value).__module__)) and was_given_users_code(value):
            for name, held in sorted(given_to(value).items()):
                if was_given_users_code(held):
                    self._say(name)
                    self.add(held)

    def _add_state(self, value: Any) -> None:
        """An object of a class of the user's: the class, and what the object holds."""
        self.add(type(value))
        with suppress(AttributeError):
            self.add(_but_what_is_cached(value, object.__getattribute__(value, "__dict__")))
        for cls in type(value).__mro__:
            slots = {name: slot for name, slot in vars(cls).items() if isinstance(slot, MemberDescriptorType)}
            for name, slot in sorted(slots.items()) if "__slots__" in vars(cls) else ():
                try:
                    self.add((name, slot.__get__(value)))
                except AttributeError:
                    self._say(name, "empty")

    def _add_array(self, value: Any) -> None:
        self._say(str(value.dtype), str(value.shape))
        if value.dtype.hasobject:
            self._all(value.ravel().tolist())
        else:
            self._hash.update(np.asarray(value, order="C").tobytes())
        if isinstance(value, np.ma.MaskedArray):
            self._all((np.ma.getmaskarray(value), np.asarray(value.fill_value)))

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
            if not is_ours(file):  # a decorator of a library may have made it
                given = (function.__defaults__, function.__kwdefaults__, dict(function.__dict__), *cells_of(function))
                self._all(filter(was_given_users_code, given))
            return
        self.modules[str(function.__module__)] = None
        self.functions.append(function)
        self._add_code(function.__code__)
        place = place_in_source(function.__code__)
        self._say(*(byte_code(function.__code__) if file.startswith("<") or place is None else [place]))
        self._all((function.__defaults__, function.__kwdefaults__, dict(function.__dict__)))
        self._all(cells_of(function))
        names = dict.fromkeys(name for name in names_in(function.__code__) if name not in OF_A_FILE)
        held = frozenset(held_names_in(function.__code__))
        self._add_meant(function.__globals__, names, held, set())
        for name, module in imported_inside(function).items():
            self._say("inside", own_name(name))
            self._add_module(module)
            self._add_attributes(module, names, held, set())
        if not ALL_NAMES.isdisjoint(names):
            self._add_names(function.__globals__)

    def _add_module(self, module: ModuleType) -> None:
        self._say(own_name(module.__name__))
        self.libraries[module.__name__] = None

    def _add_meant(self, among: dict[str, Any], names: dict[str, None], held: frozenset[str], known: set[str]) -> None:
        """Of these globals, or names of a module, those that a function mentions."""
        for name in names:
            value = among.get(name)
            if value is None:
                continue
            self._say(name)
            if not isinstance(value, ModuleType):
                self.add(value)
            else:
                self._add_module(value)
                self._add_attributes(value, names, held, known)
                if name in held and is_users(value.__name__):
                    self._add_names(vars(value))

    def _add_attributes(self, module: ModuleType, names: dict[str, None], held: frozenset[str], known: set[str]) -> None:
        """Of a module of the user's all that a function may mean by ``module.name``, also ``module.other.name``."""
        if not is_users(module.__name__) or module.__name__ in known:
            return
        known.add(module.__name__)
        if "__getattr__" in vars(module) or not COMPUTED_NAMES.isdisjoint(names):
            self._add_names(vars(module))
        self._add_meant(vars(module), names, held, known)

    def _add_names(self, names: dict[str, Any]) -> None:
        """All that a module holds, but for what every module does, and what a notebook keeps of itself."""
        if id(names) in self._seen:
            return
        self._seen[id(names)] = len(self._seen)
        self._kept.append(names)
        typed = names.get("__name__") in MAIN
        for name, value in sorted(names.items()):
            if name != "__getattr__" and name.startswith("_" if typed else "__"):
                continue
            if not (typed and name in OF_A_NOTEBOOK):
                self._say(name)
                self.add(value)

    def _add_class(self, cls: type) -> None:
        self._say(own_name(str(cls.__module__)), cls.__qualname__)
        if is_users(str(cls.__module__)):
            self.modules[str(cls.__module__)] = None
            self._all((type(cls), *cls.__bases__))
            for name, value in sorted(vars(cls).items()):
                if name not in NOT_OF_A_CLASS and not name.startswith("__pydantic_"):
                    self._say(name)
                    self.add(value)
            for name, field in vars(cls).get("__pydantic_fields__", {}).items():
                self._all((name, field.default, field.default_factory))
        else:
            self.libraries[str(cls.__module__)] = None

    def _add_code(self, code: CodeType) -> None:
        """Names and constants only: byte code is of one Python version, and what it does stands in the source."""
        self._say("code", code.co_name, repr(code.co_names), repr(code.co_varnames), str(code.co_argcount))
        self._all(code.co_consts)

    def _alone(self, value: Any) -> str:
        """One of a set, whose order means nothing; it may lead back to the set."""
        digest = ValueDigest()
        digest._seen = dict(self._seen)
        digest.add(value)
        self.modules |= digest.modules
        self.libraries |= digest.libraries
        self.functions += digest.functions
        self.caches += digest.caches
        return digest.hexdigest()

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


def _as_the_library_does(value: Any, method: str) -> Any:
    """What a method gives that is not the user's own: a class of the user's may show itself otherwise than it counts."""
    owner = next(cls for cls in type(value).__mro__ if not is_users(str(cls.__module__)))
    return getattr(owner, method)(value)


def _but_what_is_cached(value: Any, held: dict[str, Any]) -> dict[str, Any]:
    """What an object holds, but for what it works out when that is asked for."""
    return {
        name: one
        for name, one in held.items()
        if not (name in NOT_OF_A_CLASS or isinstance(getattr_static(type(value), name, None), functools.cached_property))
    }


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _name_of_type(value: Any) -> str:
    return f"{own_name(str(type(value).__module__))}.{type(value).__qualname__}"
