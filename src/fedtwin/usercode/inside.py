"""What functions import when they are called, and what functions of libraries were given of the user's."""

import dis
import functools
import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from inspect import getattr_static
from itertools import zip_longest
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from fedtwin.usercode.loading import module_beside
from fedtwin.usercode.reaching import is_users, is_users_file

MOST_DEEP = 6
ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
TAKEN = {"LOAD_GLOBAL", "LOAD_NAME", *ATTRIBUTE}


def imported_inside(function: FunctionType) -> dict[str, ModuleType]:
    """Modules of the user's that a function imports when it is called, loaded now: their values count from the start."""
    found = {}
    importer = str(function.__module__)
    package = function.__globals__.get("__package__") or importer.rpartition(".")[0]
    for level, name, attributes in dict.fromkeys(_imports_in(function.__code__)):
        with suppress(Exception, SystemExit):
            whole = importlib.util.resolve_name("." * level + name, package) if level else name
            parts = whole.split(".")
            parents = [".".join(parts[:k]) for k in range(1, len(parts) + 1)]
            for one in (*parents, *(f"{whole}.{attribute}" for attribute in attributes)):
                with suppress(Exception, SystemExit):
                    module = module_beside(importer, one)
                    if is_users(module.__name__):
                        found[module.__name__] = module
    return found


def _imports_in(code: CodeType) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Of every import its level, its name, and the names that it takes from there."""
    constants: list[Any] = []
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            level, taken = constants[-2:]
            yield level, step.argval, taken or ()
        elif step.opname.startswith("LOAD_"):
            constants.append(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports_in(constant)


def names_in(code: CodeType) -> Iterator[str]:
    """Global names and attributes that a function mentions, those of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def held_names_in(code: CodeType) -> Iterator[str]:
    """Names, of modules maybe, that a function does something else with than to take an attribute: it may hand them on."""
    steps = list(dis.get_instructions(code))
    for step, after in zip_longest(steps, steps[1:]):
        if step.opname in TAKEN and (after is None or after.opname not in ATTRIBUTE):
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from held_names_in(constant)


def was_given_users_code(value: Any, deep: int = MOST_DEEP) -> bool:
    """Whether code of the user's can be called through this function, or callable, of a library: a decorator has made it."""
    deep -= 1
    match value:
        case _ if deep < 0:
            return False
        case FunctionType() if is_users_file(value.__code__.co_filename):
            return True
        case FunctionType():
            inside: Any = (value.__defaults__, value.__kwdefaults__, value.__dict__, cells_of(value))
        case MethodType():
            inside = (value.__func__, value.__self__)
        case type():
            return is_users(str(value.__module__))
        case functools.partial():
            inside = (value.func, value.args, value.keywords)
        case tuple() | list() | set() | frozenset():
            inside = value
        case dict():
            inside = dict.values(value)
        case ModuleType():
            return False
        case _ if is_users(str(type(value).__module__)):
            return True
        case _ if callable(value) or hasattr(type(value), "__get__"):
            inside = given_to(value).values()
        case _:
            return False
    return any(was_given_users_code(part, deep) for part in list(inside))


def given_to(value: Any) -> dict[str, Any]:
    """What an object of a library holds by name; of one that Numba has compiled the function."""
    compiled = getattr_static(value, "py_func", None)
    if compiled is None and type(value).__module__.partition(".")[0] == "numba":
        made = getattr(value, "_dispatcher", None) or getattr(value, "gufunc_builder", None)
        compiled = getattr(made, "py_func", None)
    if compiled is not None:
        return {"py_func": compiled}
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except (AttributeError, TypeError):
        return {}


def cells_of(function: FunctionType) -> list[Any]:
    """What a function holds of those around it; an empty cell is left out."""
    found = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):
            found.append(cell.cell_contents)
    return found
